"""The data sets that this project knows, and where their files are looked for."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datasets.dialogues import dxy, imcs_v2, mie
from datasets.dialogues.records import TextCorpus
from datasets.errors import DataError, named
from datasets.files import PathLike

ENVIRONMENT_VARIABLE = "TFF_RE_DATA"


@dataclass(frozen=True)
class DataSet:
    """A data set of the catalogue.

    Attributes:
      name: As recipes call it.
      title: As people call it.
      language: Of its texts, ``Chinese``; ``none`` for numbers.
      task: What is classified.
      labels: The label choices, the default one first.
      files: Split to its file, relative to the data folder (``.gz`` may be added); relative to the package for the
        shipped corpus; empty for what is generated.
      vocabulary: The file of its symptom vocabulary, if it has one.
      licence: What is known of its licence.
      citation: The paper.
      obtainable: How to come by it.
      kind: What its samples are, and with it who reads them: ``texts`` (`load_corpus`), ``relations``, pairs of
        mentions in a text (`datasets.relations.loading`), ``bags``, all sentences that mention a pair of entities
        (`datasets.bags.loading`), or ``documents`` with pairs of entities (`datasets.documents.loading`).
    """

    name: str
    title: str
    language: str
    task: str
    labels: tuple[str, ...]
    files: Mapping[str, str] = field(repr=False)
    vocabulary: str | None
    licence: str
    citation: str
    obtainable: str
    kind: str = "texts"

    @property
    def relations(self) -> bool:
        """Whether its samples are pairs of mentions in a text."""
        return self.kind == "relations"


_OTHER_TASKS = {
    "relations": ("pairs of mentions", "sentence_relations"),
    "bags": ("bags of sentences", "bag_relations"),
    "documents": ("documents with pairs of entities", "document_relations"),
}


def _relations(name, title, task, labels, files, licence, citation, obtainable) -> DataSet:
    return DataSet(name, title, "English", task, labels, files, None, licence, citation, obtainable, "relations")


def _bags(name, title, task, files, licence, citation, obtainable) -> DataSet:
    return DataSet(name, title, "English", task, ("relations",), files, None, licence, citation, obtainable, "bags")


def _documents(name, title, task, labels, licence, citation, obtainable) -> DataSet:
    files = {split: f"{name}/{split}.pubtator" for split in ("train", "dev", "test")}
    return DataSet(name, title, "English", task, labels, files, None, licence, citation, obtainable, "documents")


_IMCS = "Chen et al., A benchmark for automatic medical consultation system, Bioinformatics 39(1), 2023"
_MIE = "Zhang et al., MIE: A Medical Information Extractor towards Medical Dialogues, ACL 2020"
_CHEMPROT = "Krallinger et al., Overview of the BioCreative VI chemical-protein interaction Track, 2017"
_MIE_SOURCE = "released by the authors: nlpir2020/MIE-ACL-2020 on GitHub"

DATA_SETS = {
    data_set.name: data_set
    for data_set in (
        DataSet(
            "imcs_v2",
            "IMCS-V2",
            "Chinese",
            "sentences of paediatric consultations: symptoms or dialogue acts",
            imcs_v2.LABELS,
            {split: f"imcs_v2/IMCS-V2_{split}.json" for split in ("train", "dev", "test")},
            "imcs_v2/symptom_norm.csv",
            "for research, by application; no redistribution",
            _IMCS,
            "CBLUE benchmark of Tianchi, after registration; described at lemuria-wchen/imcs21-cblue on GitHub",
        ),
        DataSet(
            "mie",
            "MIE in IMCS-V2's shape",
            "Chinese",
            "sentences of cardiology consultations: symptoms",
            imcs_v2.LABELS[:2],
            {split: f"mie/{split}.imcs_v2.json" for split in ("train", "dev", "test")},
            "mie/symptom_norm.csv",
            "none stated",
            _MIE,
            f"{_MIE_SOURCE}; a sentence carries the symptoms that its window adds",
        ),
        DataSet(
            "mie_windows",
            "MIE, windows of five utterances",
            "Chinese",
            "windows of cardiology consultations: is a category of facts mentioned",
            mie.LABELS,
            {split: f"mie/{split}.windows.json" for split in ("train", "dev", "test")},
            "mie/symptom_norm.csv",
            "none stated",
            _MIE,
            _MIE_SOURCE,
        ),
        DataSet(
            "dxy",
            "DXY",
            "Chinese",
            "parents' reports in paediatric consultations: the disease",
            dxy.LABELS,
            {split: f"dxy/{split}.jsonl" for split in ("train", "dev", "test")},
            None,
            "none stated",
            "Xu et al., End-to-End Knowledge-Routed Relational Dialogue System for Automatic Diagnosis, AAAI 2019",
            "copied in lemuria-wchen/imcs21 on GitHub: dxy_dialog_data_dialog_v2.txt, under the split's name",
        ),
        DataSet(
            "shipped",
            "Consultations written for this project",
            "Chinese",
            "sentences of made-up paediatric consultations: symptoms or dialogue acts",
            imcs_v2.LABELS,
            {split: f"consultations_{split}.json" for split in ("train", "dev")},
            "symptom_norm.csv",
            "Apache-2.0",
            "none: written for this project, no real patients",
            "comes with this package",
        ),
        DataSet(
            "synthetic",
            "Synthetic(alpha, beta)",
            "none",
            "60 features, 10 classes",
            (),
            {},
            None,
            "Apache-2.0 (generated by this package)",
            "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020",
            "generated: datasets.synthetic.generate",
        ),
        _relations(
            "chemprot",
            "ChemProt, sentences",
            "chemicals and proteins in a sentence: five groups of relations (CPR:3, 4, 5, 6, 9), or 13 names",
            ("groups", "names"),
            {split: f"chemprot/{split}.jsonl" for split in ("train", "dev", "test")},
            "none stated for the data",
            _CHEMPROT,
            "allenai/scibert on GitHub, data/text_classification/chemprot (.txt there: JSON lines)",
        ),
        _relations(
            "chemprot_release",
            "ChemProt, the task's own files",
            "chemicals and proteins in a sentence of an abstract: as chemprot; with negatives the unrelated pairs too",
            ("groups", "names", "groups_with_negatives", "names_with_negatives"),
            {
                split: f"chemprot_release/chemprot_{part}.tsv"
                for split, part in (
                    ("train", "training_relations"),
                    ("dev", "development_relations"),
                    ("test", "test_relations_gs"),
                )
            },
            "for the task's participants, after registration",
            _CHEMPROT,
            "BioCreative VI, track 5; *_abstracts and *_entities (test: *_gs) belong beside each file of relations",
        ),
        _relations(
            "pgr",
            "PGR",
            "genes and human phenotypes in a sentence: related or not; of the test file all pairs, or those confirmed",
            ("relation", "confirmed"),
            {split: f"pgr/{split}.tsv" for split in ("train", "test")},
            "Apache-2.0",
            "Sousa et al., A Silver Standard Corpus of Human Phenotype-Gene Relations, NAACL 2019",
            "lasigeBioTM/PGR on GitHub",
        ),
        _relations(
            "ade",
            "ADE, drug and effect",
            "drugs and adverse effects in a sentence: a pair that the corpus lists or one that it does not",
            ("with_negatives", "positives", "with_negative_sentences"),
            {"train": "ade/DRUG-AE.rel"},
            "none stated",
            "Gurulingappa et al., Development of a benchmark corpus … adverse effects, J. Biomed. Inform. 45, 2012",
            "the authors' ADE-Corpus-V2; copied in several repositories on GitHub; ADE-NEG.txt belongs beside it",
        ),
        _relations(
            "semeval2010_task8",
            "SemEval-2010 Task 8",
            "nominals in a general sentence: nine relations, directed or not, or Other",
            ("directed", "undirected"),
            {"train": "semeval2010_task8/train.txt", "test": "semeval2010_task8/test.txt"},
            "Creative Commons Attribution 3.0",
            "Hendrickx et al., SemEval-2010 Task 8, 2010",
            "the task's TRAIN_FILE.TXT and TEST_FILE_FULL.TXT",
        ),
        *(
            _relations(
                name,
                title,
                "genes and diseases in a sentence: associated or not (BioBERT's form, mentions as placeholders)",
                ("relation",),
                {split: f"{name}/1/{split}.tsv" for split in ("train", "test")},
                "as the corpus's own",
                citation,
                "BioBERT's data sets (dmis-lab/biobert on GitHub); the folder of one of the ten folds",
            )
            for name, title, citation in (
                (
                    "gad",
                    "GAD",
                    "Bravo et al., Extraction of relations between genes and diseases, BMC Bioinf. 16, 2015",
                ),
                ("euadr", "EU-ADR", "van Mulligen et al., The EU-ADR corpus, J. Biomed. Inform. 45, 2012"),
            )
        ),
        _relations(
            "i2b2_2010",
            "2010 i2b2/VA",
            "problems, treatments and tests in a line of a clinical record: eight relations",
            ("positives", "with_negatives"),
            {split: f"i2b2_2010/{split}" for split in ("train", "test")},
            "by agreement with n2c2; no redistribution",
            "Uzuner et al., 2010 i2b2/VA challenge on concepts, assertions, and relations, JAMIA 18, 2011",
            "n2c2 at Harvard Medical School; a split is a folder with txt, concept and rel, or the release's own",
        ),
        _documents(
            "cdr",
            "CDR, whole abstracts",
            "chemicals and diseases in an abstract: does the chemical induce the disease",
            ("relation",),
            "none stated for the data",
            "Li et al., BioCreative V CDR task corpus, Database 2016",
            "BioCreative V, track 3: CDR_TrainingSet.PubTator.txt, CDR_DevelopmentSet and CDR_TestSet",
        ),
        _documents(
            "chr",
            "CHR, whole abstracts",
            "chemicals in an abstract: does the first react to the second; unrelated pairs in both directions, or once",
            ("both", "once"),
            "Creative Commons Attribution 4.0 (annotations, NaCTeM)",
            "Sahu et al., Inter-sentence Relation Extraction with Document-level Graph Convolutional Neural Network, "
            "ACL 2019",
            "the National Centre for Text Mining, Manchester: nactem.ac.uk/CHR",
        ),
        _documents(
            "gda",
            "GDA, whole abstracts",
            "genes and diseases in an abstract: associated or not",
            ("relation",),
            "none stated for the data",
            "Wu et al., RENET: A Deep Learning Approach for Extracting Gene-Disease Associations, RECOMB 2019",
            "alexwuhkucs/renet on Bitbucket, turned into PubTator form; the published split is in "
            "fenchri/edge-oriented-graph on GitHub",
        ),
        _bags(
            "nyt10",
            "NYT10, OpenNRE's form",
            "pairs of entities in news and all sentences that mention both: relations of Freebase",
            {"train": "nyt10/nyt10_train.txt", "dev": "nyt10/nyt10_val.txt", "test": "nyt10/nyt10_test.txt"},
            "none stated; the texts are the New York Times'",
            "Riedel et al., Modeling Relations and Their Mentions without Labeled Text, ECML PKDD 2010",
            "thunlp/OpenNRE on GitHub, benchmark/download_nyt10.sh; nyt10_rel2id.json belongs beside the splits",
        ),
        _bags(
            "mirgene",
            "MIRGENE, OpenNRE's form",
            "pairs of a microRNA and a gene and all sentences that mention both: regulated or not",
            {split: f"mirgene/mirgene_{split}.txt" for split in ("train", "test")},
            "none stated",
            "Li et al., Noise Reduction Methods for Distantly Supervised Biomedical Relation Extraction, BioNLP 2017",
            "leebird/bionlp17 on GitHub, brought into OpenNRE's form; mirgene_rel2id.json belongs beside the splits",
        ),
        _bags(
            "cdr_aligned",
            "BioCreative V CDR, aligned with its own facts",
            "pairs of a chemical and a disease and all sentences that mention both: labelled by what chemicals "
            "induce in all abstracts together",
            {split: f"cdr/{split}.pubtator" for split in ("train", "dev")},
            "none stated in the release",
            "Li et al., BioCreative V CDR task corpus, Database 2016",
            "BioCreative V, track 3 (CDR), in PubTator's form",
        ),
    )
}


def find_data_set(name: str) -> DataSet:
    """The data set of a name. Raises DataError with the nearest name for an unknown one."""
    if name not in DATA_SETS:
        nearest = difflib.get_close_matches(str(name), list(DATA_SETS), 1, cutoff=0.0)[0]
        raise DataError(
            "there is no such data set", record=named("data set", name), remedy=f'did you mean "{nearest}"?'
        )
    return DATA_SETS[name]


def load_corpus(
    name: str,
    data_dir: PathLike | None = None,
    *,
    path: PathLike | None = None,
    label: str | None = None,
    split: str = "train",
) -> TextCorpus:
    """Reads the texts and labels of a data set.

    Args:
      name: A name of the catalogue.
      data_dir: The data folder; by default that of the environment variable TFF_RE_DATA.
      path: A file to read in place of the one that the catalogue names.
      label: One of the data set's label choices; the first one by default.
      split: One of the data set's splits; with `path`, any word for what the file holds, and one of its splits where it
        holds several.

    Raises:
      DataError: an unknown name, label or split, a file that is not there (the message names it), or a malformed one.
    """
    data_set = find_data_set(name)
    if data_set.kind in _OTHER_TASKS:
        samples, task = _OTHER_TASKS[data_set.kind]
        raise DataError(
            f"holds {samples}, not texts with a label",
            record=f"data set {name}",
            remedy=f'use it with task.name = "{task}"',
        )
    if not data_set.files:
        raise DataError(
            "has no texts", record=f"data set {name}", remedy="it is generated: datasets.synthetic.generate"
        )
    label = label_choice(data_set, label)
    file = split_file(name, split, data_dir) if path is None else path
    if name == "mie_windows":
        return mie.labelled_windows(mie.read_windows(file, split=split), label, name=name)
    if name == "dxy":
        classes = None
        if split != "train" and path is None:
            training = dxy.read_consultations(split_file(name, "train", data_dir), split="train")
            classes = dxy.self_reports(training).label_names
        return dxy.self_reports(dxy.read_consultations(file, split=split), classes, name=name, path=file)
    return imcs_v2.labelled_sentences(imcs_v2.read_dialogues(file), label, name=name, path=file)


def label_choice(data_set: DataSet, label: str | None) -> str:
    """The label choice, the data set's first one for None. Raises DataError for one that it does not have."""
    label = data_set.labels[0] if label is None else label
    if label not in data_set.labels:
        raise DataError(
            f"has no such label choice ({named('label', label)})",
            record=f"data set {data_set.name}",
            remedy=f"use one of {', '.join(data_set.labels)}",
        )
    return label


def symptom_vocabulary(name: str, data_dir: PathLike | None = None, path: PathLike | None = None) -> tuple[str, ...]:
    """The words of a data set that segmentation has to know; none for a data set without a vocabulary.

    Raises:
      DataError: an unknown name, or a file that is not there or malformed.
    """
    data_set = find_data_set(name)
    if path is None:
        if data_set.vocabulary is None:
            return ()
        path = _locate(name, data_set.vocabulary, data_dir)
    return imcs_v2.read_symptom_vocabulary(path)


def split_file(name: str, split: str, data_dir: PathLike | None = None) -> Path:
    """The file of a split. Raises DataError, which names the file expected, if it is not there."""
    data_set = find_data_set(name)
    if split not in data_set.files:
        raise DataError(
            f"has no such split ({named('split', split)})",
            record=f"data set {name}",
            remedy=f"use one of {', '.join(data_set.files)}" if data_set.files else "it is generated",
        )
    others = [other for other in data_set.files if other != split and _is_there(name, data_set.files[other], data_dir)]
    return _locate(name, data_set.files[split], data_dir, others)


def files_there(name: str, data_dir: PathLike | None = None) -> dict[str, bool]:
    """The files of a data set, as the catalogue names them, and whether they are there."""
    data_set = find_data_set(name)
    files = list(data_set.files.values()) + ([data_set.vocabulary] if data_set.vocabulary else [])
    return {file: _is_there(name, file, data_dir) for file in files}


def _root(name: str, data_dir: PathLike | None) -> Path | None:
    if name == "shipped":
        # The package is installed as files, never as an archive.
        from importlib.resources import files

        return Path(str(files("datasets") / "shipped"))
    folder = os.environ.get(ENVIRONMENT_VARIABLE) if data_dir is None else data_dir
    return Path(folder) if folder else None


def _candidates(root: Path, file: str) -> tuple[Path, Path]:
    return root / file, root / (file + ".gz")


def _is_there(name: str, file: str, data_dir: PathLike | None) -> bool:
    root = _root(name, data_dir)
    return root is not None and any(path.exists() for path in _candidates(root, file))


def _locate(name: str, file: str, data_dir: PathLike | None, others: list[str] | None = None) -> Path:
    root = _root(name, data_dir)
    remedy = f"--data DIR or the environment variable {ENVIRONMENT_VARIABLE}"
    if root is None:
        raise DataError(
            f"needs the file {file} in a data folder, and none is given",
            record=f"data set {name}",
            remedy=f"name the folder by {remedy}",
        )
    for path in _candidates(root, file):
        if path.exists():
            return path
    remedy = f"put it there ({find_data_set(name).obtainable}), or name another folder by {remedy}"
    if others:
        remedy = f"the split {' or '.join(others)} is there; or {remedy}"
    raise DataError("no such file (nor with .gz)", path=root / file, remedy=remedy)

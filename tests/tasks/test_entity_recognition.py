"""Entity recognition: what clients hold and read, which types they annotate, the dictionary, what is refused.

Keys of [task] that another key leaves unread are in tests/recipes/test_unread_keys.py.
"""

from __future__ import annotations

import dataclasses
import gzip

import numpy as np
import pytest

from datasets.entities import writing
from datasets.entities.loading import load_entities
from datasets.entities.scoring import dictionary, score_spans, tag_with_dictionary
from datasets.entities.tags import tag_names
from datasets.errors import DataError
from datasets.partition import ClientSamples, read_partition, write_partition
from tests.models.encoders_for_tests import CHINESE, chinese_encoder, encoder
from tests.recipe_data_for_tests import data_folder
from tests.recognition_for_tests import DRUGS, TYPES, WARDS, marked, recipe_of, record, table, write_texts
from tests.upper_floors import SECRET
from tff_re.errors import UserError
from tff_re.models.inputs import TaggedPieceInput, TaggedTokenInput
from tff_re.recipes.reading import resolve
from tff_re.runs.experiment import ExperimentBuilder
from tff_re.tasks.data_paths import DataPaths

TEXTS, TEST_TEXTS = 32, 8
DRUG, SYMPTOM = ("drug",), ("symptom",)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("entities") / "train.jsonl", map(record, range(TEXTS)))


@pytest.fixture(scope="module")
def test_texts(texts):
    """Texts of the same wards, with ids of their own."""
    numbers = range(100, 100 + 2 * TEST_TEXTS, 2)
    return write_texts(texts.with_name("test.jsonl"), (record(number, prefix="later-") for number in numbers))


def prepare(file, *, seed=0, data_paths=None, partition=None, **task):
    sections = {} if partition is None else {"partition": partition}
    recipe = recipe_of(file, seed=seed, task=task, **sections)
    return ExperimentBuilder(data_paths or DataPaths()).prepare(recipe)


def ids(prepared, split):
    """Client -> the ids of its samples of a split."""
    return {client: getattr(held, split) for client, held in prepared.partition.clients.items()}


def every(prepared, split):
    return [i for of_client in ids(prepared, split).values() for i in of_client]


def samples_of(prepared):
    return {sample.sample_id: sample for corpus in prepared.corpora for sample in corpus.samples}


def examples_of(prepared, split):
    return {client.client_id: getattr(client, split) for client in prepared.examples.clients}


def assert_encoded(prepared, split="train"):
    """Clients hold the arrays that the encoding makes of their samples."""
    sample_of = samples_of(prepared)
    for client, arrays in examples_of(prepared, split).items():
        samples = [sample_of[i] for i in ids(prepared, split)[client]]
        wanted = prepared.encoding.encode(samples).arrays
        assert arrays.keys() == wanted.keys() == {*prepared.inputs.specs, "y"}
        for name, array in wanted.items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=name)


# What clients hold


def test_a_ward_is_a_client_and_holds_out_its_share(texts):
    prepared = prepare(texts)
    assert [len(held) for held in ids(prepared, "train").values()] == [6] * 4 and list(ids(prepared, "test")) == [
        *WARDS
    ]
    assert [len(held) for held in ids(prepared, "test").values()] == [2] * 4
    assert prepared.label_names == ("no entity", *TYPES)
    assert prepared.class_names == tag_names(TYPES) == ("O", "B-drug", "I-drug", "B-symptom", "I-symptom")
    assert prepared.measured_names == prepared.measures.class_names == TYPES
    assert prepared.counts.label_names == prepared.label_names and prepared.counts.train.sum() == 24
    assert ids(prepared, "train") == ids(prepare(texts), "train") != ids(prepare(texts, seed=1), "train")


def test_documents_are_set_apart_by_a_seed_of_their_own(texts):
    task = {"test": "documents", "test_share": 0.25}

    def documents(prepared, split):
        return {samples_of(prepared)[i].document_id for i in every(prepared, split)}

    prepared = prepare(texts, **task)
    apart = documents(prepared, "test")
    assert len(apart) == 4 and len(documents(prepared, "train")) == 12 and not apart & documents(prepared, "train")
    assert "test set: 8 texts of 4 of the 16 documents" in prepared.notes
    iid = {"name": "iid", "num_clients": 3}
    runs = [prepare(texts, seed=seed, partition=iid, **task) for seed in (0, 1)]
    assert documents(runs[0], "test") == documents(runs[1], "test") == apart
    assert ids(runs[0], "train") != ids(runs[1], "train")
    assert any(documents(prepare(texts, test_seed=seed, **task), "test") != apart for seed in (1, 2))


def test_the_official_split_is_another_file(texts, test_texts):
    prepared = prepare(texts, test="official", test_path=str(test_texts), test_split="later")
    assert sorted(every(prepared, "train")) == sorted(f"train-{n}" for n in range(TEXTS))
    assert len(every(prepared, "test")) == TEST_TEXTS and all(i.startswith("later-") for i in every(prepared, "test"))
    assert_encoded(prepared)
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        prepare(texts, test="official", test_path=str(test_texts.with_name("nowhere.jsonl")))
    with pytest.raises(DataError, match=r"name yours by task\.path"):
        prepare(texts, test="official")


def test_test_texts_of_another_data_set(tmp_path):
    """Types by name; what the training data set alone has, such as `other_types`, is not asked of the other."""
    sentence = {**marked("The <Chemical:drug> binds the <Disease:rash>."), "id": "1"}
    own = write_texts(tmp_path / "own.jsonl", [{**sentence, "id": str(n), "ward": WARDS[n % 2]} for n in range(8)])
    data = DataPaths(data=data_folder())
    task = {"test": "official", "test_dataset": "cdr_entities", "test_split": "test", "unit": "sentence"}
    prepared = prepare(own, data_paths=data, encoding="words", partition={"name": "iid", "num_clients": 2}, **task)
    assert prepared.label_names == ("no entity", "Chemical", "Disease")
    tested = every(prepared, "test")
    assert tested and all(i.startswith("cdr_entities-test-") and "/" in i for i in tested)
    whole = prepare(
        own, data_paths=data, encoding="words", partition={"name": "iid", "num_clients": 2}, **{**task, "unit": None}
    )
    assert len(every(whole, "test")) == 12 < len(tested)
    columns = write_texts(tmp_path / "ncbi.jsonl", [])
    columns.with_name("test.tsv").write_text("The\tO\nrash\tB\n", "utf-8")
    diseases = {**task, "entity_types": ["Disease"], "other_types": "leave_out", "test_dataset": "ncbi_disease"}
    prepared = prepare(
        own,
        data_paths=data,
        encoding="words",
        partition={"name": "iid", "num_clients": 2},
        **{**diseases, "test_path": str(columns.with_name("test.tsv"))},
    )
    assert len(every(prepared, "test")) == 1, "a data set without a choice of unit"
    assert "8 entities of other types left out" in prepared.notes


def test_subsets(texts, test_texts):
    task = {"test": "official", "test_path": str(test_texts)}
    fewer = prepare(texts, subset=10, test_subset=3, **task)
    assert (len(every(fewer, "train")), len(every(fewer, "test"))) == (10, 3)
    assert "10 of 32 texts, drawn" in fewer.notes and "3 of 8 texts, drawn" in fewer.notes
    other_run = prepare(texts, subset=10, test_subset=3, seed=1, **task)
    assert {*every(other_run, "train")} != {*every(fewer, "train")}
    assert {*every(other_run, "test")} == {*every(fewer, "test")}
    assert {*every(prepare(texts, test_subset=3, test_seed=5, **task), "test")} != {*every(fewer, "test")}
    assert len(every(prepare(texts, test="documents", test_subset=2), "test")) == 2


def test_the_server_holds_texts_that_no_client_has(texts):
    prepared = prepare(texts, server_share=0.25)
    server = prepared.partition.server
    assert len(server) == 8 and len(prepared.examples.server["y"]) == 8
    assert not {*server} & {*every(prepared, "train"), *every(prepared, "test")}
    wanted = prepared.encoding.encode([samples_of(prepared)[i] for i in server]).arrays
    for name, array in prepared.examples.server.items():
        np.testing.assert_array_equal(array, wanted[name])
    assert prepare(texts).examples.server is None


def test_a_partition_file_stands_in_for_the_partitioner(texts, tmp_path):
    drawn = prepare(texts, partition={"name": "iid", "num_clients": 3}, seed=7, server_share=0.25)
    path = tmp_path / "p.json"
    write_partition(drawn.partition, path)
    again = prepare(texts, data_paths=DataPaths(partition=path), server_share=0.25)
    assert again.partition == drawn.partition == read_partition(path, *drawn.corpora)
    for name, array in drawn.examples.pooled("train").items():
        np.testing.assert_array_equal(again.examples.pooled("train")[name], array)
    write_partition(prepare(texts).partition, path)
    with pytest.raises(UserError, match=r"the server holds no samples in it; set task\.server_share to 0"):
        prepare(texts, data_paths=DataPaths(partition=path), server_share=0.25)


def test_texts_of_one_group_are_protected_together(texts, tmp_path):
    """The patient where records name one, else the document."""
    protected = prepare(texts).with_groups()
    for client in protected.examples.clients:
        patients = [samples_of(protected)[i].more["group"] for i in ids(protected, "train")[client.client_id]]
        groups = client.train["group"]
        for one in range(len(groups)):
            assert ((groups == groups[one]) == [patients[one] == patient for patient in patients]).all()
    assert any(note.startswith("privacy: 8 groups of training examples") for note in protected.notes)
    without = [{key: value for key, value in record(n).items() if key != "group"} for n in range(TEXTS)]
    of_documents = prepare(write_texts(tmp_path / "texts.jsonl", without)).with_groups()
    count = len({samples_of(of_documents)[i].document_id for i in every(of_documents, "train")})
    assert any(note.startswith(f"privacy: {count} groups of training examples") for note in of_documents.notes)


# What clients read


def test_characters(texts):
    prepared = prepare(texts, scheme="BIOES")
    assert_encoded(prepared), assert_encoded(prepare(texts))
    assert prepared.inputs == TaggedTokenInput(len(prepared.encoding.text_encoding.vocabulary), 40, TYPES, "BIOES")
    assert prepared.class_names == tag_names(TYPES, "BIOES") and prepared.inputs.num_tags == 9
    assert prepared.encoding.describe() in prepared.notes
    tags = prepared.examples.pooled("train")["tags"]
    sample = samples_of(prepared)[every(prepared, "train")[0]]
    assert tags[0, len(sample.text) :].tolist() == [-1] * (40 - len(sample.text))
    assert (tags[0] > 0).sum() == sum(span.end - span.start for span in sample.spans)


def test_test_texts_are_sorted_by_their_length(texts):
    for arrays in examples_of(prepare(texts, test_share=0.5), "test").values():
        lengths = (arrays["tags"] >= 0).sum(axis=1).tolist()
        assert lengths == sorted(lengths)


def test_a_word_of_one_client_is_not_in_the_vocabulary(texts, test_texts, tmp_path):
    changed = [record(n) for n in range(TEXTS)]
    for value in changed:
        value["text"] += {"north": "麒", "south": "麟"}.get(value["ward"], "")
    path = write_texts(tmp_path / "texts.jsonl", changed)
    shared, known = (prepare(path, min_clients=n).encoding.text_encoding.vocabulary.words for n in (2, 1))
    assert not {"麒", "麟"} & {*shared} and {"麒", "麟"} <= {*known}
    later = write_texts(tmp_path / "later.jsonl", [{**record(n, prefix="l"), "text": "鑫" * 40} for n in (0, 4, 8, 12)])
    assert "鑫" not in prepare(texts, test="official", test_path=str(later)).encoding.text_encoding.vocabulary.words
    assert len(prepare(texts, max_words=5).encoding.text_encoding.vocabulary) == 5


def test_words_that_cut_an_entity_do_not_represent_it(tmp_path):
    """jieba takes 头痛 for a word; the corpus marks 头 in every second text."""
    texts = ["孩子<symptom:头>痛", "孩子<symptom:头痛>", "孩子<symptom:头>痛，<symptom:发热>", "孩子好了"] * 4
    records = [{**marked(text), "id": str(n), "ward": WARDS[n // 4]} for n, text in enumerate(texts)]
    prepared = prepare(write_texts(tmp_path / "texts.jsonl", records), encoding="words", test_share=0.5)
    assert_encoded(prepared)
    everything = [examples for split in ("train", "test") for examples in examples_of(prepared, split).values()]
    missing = np.concatenate([examples["unrepresented"] for examples in everything])
    assert missing.sum() == 8 and {*missing.ravel()} == {0, 1}
    wanted = "8 of 16 entities are not represented by tags: 0 reach into what was cut, 8 begin or end inside of a token"
    assert wanted in prepared.notes
    characters = prepare(tmp_path / "texts.jsonl", test_share=0.5)
    assert not characters.examples.pooled("train")["unrepresented"].any()
    assert not any("not represented" in note for note in characters.notes)


def test_word_pieces(texts):
    task = {"encoding": "pieces", "tokenizer": str(chinese_encoder()), "min_clients": None}
    prepared = prepare(texts, **task)
    assert_encoded(prepared)
    assert prepared.inputs == TaggedPieceInput(len(CHINESE), 40, TYPES, "BIO", str(chinese_encoder()))
    assert ids(prepared, "train") == ids(prepare(texts), "train"), "the same samples as of characters"
    ended = examples_of(prepared, "train")["north"]
    assert (ended["tags"][:, 0] == -1).all(), "[CLS]"
    assert ((ended["tags"] >= 0).sum(axis=1) == ended["attention_mask"].sum(axis=1) - 2).all()
    whole = prepare(texts, **task, max_length=0)
    arrays, _ = whole.encoding.encode_texts([sample.text for sample in whole.corpora[0].samples])
    longest = int(arrays["attention_mask"].sum(axis=1).max())
    assert whole.inputs.max_length == longest == whole.examples.pooled("train")["tags"].shape[1] < 40
    assert not any("cut" in note for note in whole.notes)


def test_notes_say_what_was_cut_and_what_stands_in_both_splits(texts, tmp_path):
    cut = prepare(texts, max_length=len(SECRET) + 2)
    assert f"{TEXTS} of {TEXTS} texts cut to the length limit, at their end" in cut.notes
    entities = sum(len(sample.spans) for sample in cut.corpora[0].samples)
    missing = f"{entities} of {entities} entities are not represented by tags: {entities} reach into what was cut, 0 "
    assert any(note.startswith(missing) for note in cut.notes)
    repeated = [{**record(0), "id": str(n), "ward": WARDS[n % 4]} for n in range(16)]
    notes = prepare(write_texts(tmp_path / "texts.jsonl", repeated)).notes
    assert "duplicates: 4 of 4 test examples (100.0%) are also in train" in notes
    assert "15 texts repeat an earlier one" in notes
    assert not any(SECRET in note for note in (*cut.notes, *notes))


def test_word_vectors_of_a_file(texts, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("2 4\n咳 1 2 3 4\n药 5 6 7 8\n", "utf-8")
    prepared = prepare(texts, vectors_path=str(path))
    words, matrix = prepared.encoding.text_encoding.vocabulary.words, prepared.inputs.vectors
    assert matrix.shape == (len(words) + 2, 4) and matrix[words.index("咳") + 2].tolist() == [1, 2, 3, 4]
    assert any(note.startswith("word vectors (vectors.txt): width 4, ") for note in prepared.notes)


TOKENS = "Aspirin|drug and ibuprofen|drug stop gastric|disease ulcers|disease ."


def own_corpus(folder):
    """Eight texts of tokens between blanks, the same entities in each of the forms."""
    words = [word.partition("|")[::2] for word in TOKENS.split()]
    text, spans, place, offset = " ".join(word for word, _ in words), [], [], 0
    for word, kind in words:
        place.append((offset, offset + len(word)))
        if kind and spans and spans[-1][2] == kind and spans[-1][1] == offset - 1:
            spans[-1] = [spans[-1][0], offset + len(word), kind]
        elif kind:
            spans.append([offset, offset + len(word), kind])
        offset += len(word) + 1
    records = [{"id": str(n), "text": text, "entities": spans} for n in range(8)]
    return load_entities("entities", path=write_texts(folder / "first.jsonl", records)), [place] * 8


@pytest.mark.parametrize("form", [".jsonl", ".jsonl.gz", ".conll", ".bio", ".pubtator", "folder"])
def test_own_files_of_every_form_give_the_same_examples(form, tmp_path):
    corpus, tokens = own_corpus(tmp_path)
    first = prepare(tmp_path / "first.jsonl", encoding="words", partition={"name": "iid", "num_clients": 2})
    assert [[s.type for s in sample.spans] for sample in corpus.samples] == [["drug", "drug", "disease"]] * 8
    path = tmp_path / f"own{form}"
    if form == "folder":
        path = tmp_path / "brat"
        writing.to_brat(path, corpus.samples, "train")
    else:
        written = {
            ".jsonl": writing.to_json_lines,
            ".pubtator": writing.to_pubtator,
        }.get(form.removesuffix(".gz"), lambda samples, split: writing.to_conll(samples, tokens, split))
        content = written(corpus.samples, "train").encode()
        path.write_bytes(gzip.compress(content) if form.endswith(".gz") else content)
    prepared = prepare(path, encoding="words", partition={"name": "iid", "num_clients": 2})
    assert prepared.label_names == first.label_names == ("no entity", "disease", "drug")
    assert ids(prepared, "train") == ids(first, "train")
    for split in ("train", "test"):
        for client, arrays in examples_of(prepared, split).items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, examples_of(first, split)[client][name], err_msg=name)


# Who annotates what

ANNOTATED = {"north": DRUG, "south": SYMPTOM}


def assert_annotated(prepared, split, client, types, *, told=True):
    """The client's arrays have entities of these types only, and (`told`) say so."""
    arrays = examples_of(prepared, split)[client]
    known = [name in types for name in TYPES]
    assert arrays["annotated"].tolist() == [known if told else [True] * 2] * len(arrays["y"])
    tags = {*arrays["tags"][arrays["tags"] > 0].tolist()}
    assert (tags or split == "test") and tags <= {
        tag for tag, name in enumerate(prepared.class_names) if name[2:] in types
    }
    assert {*arrays["y"].tolist()} <= {0, *(1 + TYPES.index(name) for name in types)}


@pytest.mark.parametrize("test", ["hold_out", "official"])
def test_clients_annotate_some_types(texts, test_texts, test):
    """Their held-out texts, too; those of the official split have all types."""
    task = {"test": test, **({"test_path": str(test_texts)} if test == "official" else {})}
    prepared = prepare(texts, annotated=ANNOTATED, **task)
    for client in WARDS:
        types = ANNOTATED.get(client, TYPES)
        assert_annotated(prepared, "train", client, types)
        assert_annotated(prepared, "test", client, TYPES if test == "official" else types)
    assert prepared.annotated == ANNOTATED


def test_a_type_a_client_in_turn(texts):
    prepared = prepare(texts, annotated_by="turns", entity_types=["symptom", "drug"])
    assert prepared.label_names == ("no entity", "symptom", "drug")
    told = {client: arrays["annotated"][0].tolist() for client, arrays in examples_of(prepared, "train").items()}
    assert told == {"north": [1, 0], "south": [0, 1], "east": [1, 0], "west": [0, 1]}
    assert prepared.annotated == {"north": SYMPTOM, "south": DRUG, "east": SYMPTOM, "west": DRUG}


@pytest.mark.parametrize("test", ["hold_out", "official"])
def test_types_that_are_not_annotated_may_count_as_no_entity(texts, test_texts, test):
    """The control: the loss is of all types, and the metrics are those of the other runs."""
    task = {"test": test, **({"test_path": str(test_texts)} if test == "official" else {})}
    plain, left_out = (
        prepare(texts, annotated_by="turns", unannotated=value, **task) for value in ("no_entity", "left_out")
    )
    for client, types in plain.annotated.items():
        assert_annotated(plain, "train", client, types, told=False)
        assert_annotated(plain, "test", client, TYPES if test == "official" else types)
    for client, arrays in examples_of(plain, "test").items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, examples_of(left_out, "test")[client][name], err_msg=name)
    for client, arrays in examples_of(plain, "train").items():
        np.testing.assert_array_equal(arrays["tags"], examples_of(left_out, "train")[client]["tags"])


def test_what_a_client_cannot_annotate(texts):
    unknown = refused(texts, annotated={"nort": DRUG})
    assert unknown == "r.toml: task.annotated names a client that has no examples; did you mean 'north'?"
    kind = refused(texts, annotated={"north": ["drugs"]})
    assert kind == "r.toml: task.annotated.north: 'drugs' is not a type; did you mean 'drug'?"
    assert "annotated, client north: annotates no type" in refused(texts, annotated={"north": []})


# What needs no training


def reference(prepared):
    (row,) = prepared.references().items()
    return row


def test_the_dictionary_of_the_training_entities(texts, test_texts):
    prepared = prepare(texts, test="official", test_path=str(test_texts), test_split="later")
    name, metrics = reference(prepared)
    sample_of = samples_of(prepared)
    known = dictionary(sample_of[i] for i in every(prepared, "train"))
    assert {*DRUGS} <= known.keys()
    tested = [sample_of[i] for i in every(prepared, "test")]
    scores = score_spans([s.spans for s in tested], tag_with_dictionary([s.text for s in tested], known), TYPES)
    assert name == "trivial: dictionary of the training entities" and metrics["test/f1"] == scores.micro.f1 == 1
    assert metrics["test/macro_f1"] == scores.macro_f1 and metrics["test/lenient_f1"] == scores.micro.lenient_f1
    names = (*("f1", "macro_f1", "precision", "recall"), *(f"lenient_{n}" for n in ("f1", "precision", "recall")))
    assert {*metrics} == {f"test/{name}" for name in names}


def test_the_dictionary_knows_what_clients_annotated_and_is_measured_as_the_model_is(texts, test_texts):
    official = {"test": "official", "test_path": str(test_texts)}
    _, drugs = reference(prepare(texts, annotated=dict.fromkeys(WARDS, DRUG), **official))
    assert drugs["test/precision"] == 1 and 0 < drugs["test/recall"] < 1 and drugs["test/macro_f1"] == 0.5
    _, held_out = reference(prepare(texts, annotated=dict.fromkeys(WARDS, DRUG)))
    assert held_out["test/recall"] == held_out["test/macro_f1"] == 1, "held-out texts have the client's types only"
    _, mixed = reference(prepare(texts, annotated={"north": DRUG}))
    assert mixed["test/precision"] == 1, "at north a symptom is neither right nor wrong"


def test_without_test_texts_there_is_nothing_to_compare_with(texts, tmp_path):
    drawn = prepare(texts).partition
    whole = {client: ClientSamples((*held.train, *held.test), ()) for client, held in drawn.clients.items()}
    write_partition(dataclasses.replace(drawn, clients=whole), tmp_path / "p.json")
    assert prepare(texts, data_paths=DataPaths(partition=tmp_path / "p.json")).references() == {}


# What is refused

REFUSED = [
    ({"dataset": "chemprot"}, "'task.dataset' 'chemprot' has no texts with entities; use its own task"),
    ({"dataset": "shipped"}, "'task.dataset' 'shipped' has no texts with entities; use its own task"),
    ({"dataset": "entitis"}, "there is no such data set"),
    ({"test": "official", "test_dataset": "cdr"}, "'cdr' has no texts with entities"),
    ({"entity_types": ["drug", "drug"]}, "'task.entity_types' names a type twice; name every type once"),
    ({"max_length": 0}, "'task.max_length' = 0 needs encoding = 'pieces'"),
    (
        {"annotated": {"a": ["drug"]}, "annotated_by": "turns"},
        "'task.annotated' and annotated_by cannot be set together",
    ),
    ({"annotated": {"a": "drug"}}, "'task.annotated' must be a list, got 'drug'"),
    ({"annotated": ["drug"]}, "'task.annotated' must be a table"),
    ({"unannotated": "no_entity"}, "'task.unannotated' needs annotated, or annotated_by = 'turns'"),
    ({"scheme": "IOB"}, "'task.scheme' must be one of 'BIO', 'BIOES', got 'IOB'"),
    ({"nested": "innermost"}, "'task.nested' must be"),
    ({"max_lenght": 9}, "unknown key 'task.max_lenght'"),
]


@pytest.mark.parametrize(("task", "wanted"), REFUSED, ids=range(len(REFUSED)))
def test_options_that_do_not_fit(task, wanted):
    with pytest.raises((UserError, DataError)) as caught:
        resolve(table("own.jsonl", task=task), "r.toml")
    assert wanted in str(caught.value) and "\n" not in str(caught.value)


def refused(path, **task):
    with pytest.raises((UserError, DataError)) as caught:
        prepare(path, **task)
    message = str(caught.value)
    assert "\n" not in message and SECRET not in message
    return message


def test_data_that_do_not_fit(texts, tmp_path):
    types = (
        "line 1: an entity's type is not in entity_types; use one of drug, add it to entity_types, or set other_types"
    )
    assert types in refused(texts, entity_types=["drug"])
    assert prepare(texts, entity_types=["drug"], other_types="leave_out").label_names == ("no entity", "drug")
    shipped = refused(None, dataset="shipped_entities", entity_types=["Drgu"], partition={"name": "natural"})
    assert shipped == "type Drgu: there is no such type; did you mean 'Drug'?"
    assert "task.tokenizer is not set" in refused(texts, encoding="pieces", min_clients=None)
    one = write_texts(tmp_path / "one.jsonl", map(record, range(2)))
    assert "a test set of whole documents needs two documents" in refused(one, test="documents")
    value = record(1)
    value["entities"].append([0, len(value["text"]), "drug"])
    nested = write_texts(tmp_path / "nested.jsonl", [value, *map(record, range(2, 18))])
    assert "line 1: the entity 14:16 overlaps 0:22; keep one of them, or set nested = 'outermost'" in refused(nested)
    assert "2 entities that overlap a longer one left out" in prepare(nested, nested="outermost").notes


def test_a_vocabulary_of_another_language_is_refused(texts):
    message = refused(texts, encoding="pieces", tokenizer=str(encoder()), min_clients=None)
    assert (
        "of the word pieces of the training texts; give an encoder for the texts' language (task.tokenizer)" in message
    )

"""The first part of an audit: what one client's update tells of its words, its labels and its sentences."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tff_re.auditing import span
from tff_re.auditing.advice import Advice
from tff_re.auditing.one_round import build_update, change_of_round, first_client_state, no_weights_sent, round_clients
from tff_re.auditing.pictures import words_png
from tff_re.auditing.sections import Finding, Section, exact_interval, share
from tff_re.auditing.words import (
    RevealedWords,
    WordRows,
    everywhere,
    find_word_rows,
    has_known_words,
    label_counts,
    presence,
    revealed_labels,
    revealed_words,
    words_of,
)
from tff_re.runs.evaluation import arranged
from tff_re.runs.finished import FinishedRun

MOST_CLIENTS = 10
"""Of the last round's clients so many are looked at, one after the other."""

SENTENCES = 4
"""For the span check."""

_RANKED = "AUC of a client's words before others, ranked by the change of their rows in"
_TITLE = "Words, labels and sentences in one client's update"


def audit_updates(run: FinishedRun, seed: int, out: Path, say: Callable[[str], None]) -> Section:
    """Returns the report's section on updates and writes its picture to `out`."""
    experiment, section = run.experiment, Section(_TITLE)
    if (reason := no_weights_sent(experiment.algorithm)) is not None:
        section.not_applicable = reason
        return section
    ids, examples = arranged(experiment, "train")
    last = experiment.recipe.training.rounds
    chosen, clients = round_clients(experiment, ids, examples, last, seed)
    looked_at = list(range(len(chosen)))[:MOST_CLIENTS]
    names = [ids[chosen[index]] for index in looked_at]
    section.tried.append(
        f"{len(looked_at)} of the {len(chosen)} clients of round {last} trained locally, each separately, by the "
        f"run's algorithm ({experiment.recipe.algorithm.name}): once from the first round's weights and once from "
        "the finished model's. What each of them would send was compared with its data. Anyone who sees one client's "
        "update, like the server without secure sums, can do the same, except for the comparison."
    )
    starts = {"first round": experiment.model.initial_weights(seed), "finished model": run.weights}
    update_of = build_update(experiment.algorithm)
    updates: dict[str, list] = {}
    for when, weights in starts.items():
        updates[when] = []
        for index in looked_at:
            say(f"local training of client {ids[chosen[index]]}, {when}")
            states = [[state] for state in first_client_state(experiment, examples[chosen[index]], seed)]
            (update,) = update_of(weights, [clients[index]], *states)
            updates[when].append([np.asarray(tensor) for tensor in update])
    client_examples = [examples[chosen[index]] for index in looked_at]
    states = [state for i in chosen for state in first_client_state(experiment, examples[i], seed)]
    say(f"a round of {len(chosen)} clients")
    together = change_of_round(experiment.algorithm, run.weights, starts["first round"], clients, states, seed)
    rows = find_word_rows(experiment)
    if isinstance(rows, str):
        section.results.append(f"Words: not applicable: {rows}. No matrix in the update has a row for each word.")
        section.numbers["words"] = {"not_applicable": rows}
    else:
        in_round = [examples[i] for i in chosen]
        _words(section, run, rows, names, client_examples, updates, in_round, together, out)
    _word_vectors_by_default(section, experiment.recipe.model.name)
    _labels(section, run, names, client_examples, updates)
    _spans(section, run, seed, client_examples, updates["finished model"], say)
    section.not_tried += [
        "Reconstructing the order of the words or whole sentences from an update by optimisation (LAMP, TAG).",
        "What is sent in addition to the weights: control variates, class vectors, scores of sentences, evaluation "
        "of each client.",
        "Updates from several rounds of the same client together.",
    ]
    return section


# Words


def _words(
    section: Section,
    run: FinishedRun,
    rows: WordRows,
    names: list[str],
    client_examples: list,
    updates_of,
    in_round: list,
    together,
    out,
) -> None:
    experiment, advice = run.experiment, Advice(run.experiment.recipe.privacy)
    inputs = experiment.prepared.inputs
    _, everybody = arranged(experiment, "train")
    all_ids = np.concatenate([words_of(inputs, examples) for examples in everybody])
    left_out, picture = everywhere(all_ids, rows.size, has_known_words(inputs)), out / "words.png"
    present = [presence(words_of(inputs, examples), rows.size) for examples in client_examples]
    table, csv = [], [["client", "weights", "words", "rows_changed", "precision", "recall", "ranking_auc"]]
    numbers: dict[str, object] = {"weight": rows.name, "why": rows.why}
    for when, updates in updates_of.items():
        revealed = [
            revealed_words(update[rows.index], there, left_out, rows.first)
            for update, there in zip(updates, present, strict=True)
        ]
        csv += [
            [name, when, r.words, r.changed, r.precision, r.recall, r.ranking]
            for name, r in zip(names, revealed, strict=True)
        ]
        precision, recall = _pooled(revealed)
        ranking = _mean_of_known([r.ranking for r in revealed])
        numbers[when] = {**precision, **recall, "ranking_auc": ranking, "clients": len(revealed)}
        table.append([when, *_cells(precision, recall), _ranked(ranking)])
        if when == "finished model":
            words_png(picture, names, [r.precision for r in revealed], [r.recall for r in revealed])
            chance = share(sum(r.words for r in revealed), len(revealed) * int((~left_out).sum()))
            cover = advice.word_rows
            numbers["noised"] = noised = _all_changed(revealed, int((~left_out).sum()))
            section.findings += (
                [Finding(f"{_RANKED} one client's update", _known(ranking), None, 0.5, cover, False)]
                if noised
                else [
                    Finding("words read from one client's update that are its words", *_pair(precision), chance, cover),
                    Finding("a client's words that its update reveals", *_pair(recall), None, cover),
                ]
            )
            section.means.append(_meaning(ranking, precision["precision"], recall["recall"]))
    # The union of all of the round's clients, and how well it says what one of them holds.
    of_round = [presence(words_of(inputs, examples), rows.size) for examples in in_round]
    union = np.any(of_round, axis=0)
    summed = revealed_words(together[rows.index], union, left_out, rows.first)
    precision, recall = _pooled([summed])
    numbers["sum of the round"] = {**precision, **recall, "ranking_auc": summed.ranking, "clients": len(in_round)}
    table.append([f"sum of {len(in_round)} clients", *_cells(precision, recall), _ranked(summed.ranking)])
    one_of_all = [share((there & ~left_out).sum(), (union & ~left_out).sum()) for there in of_round]
    many, cover = len(in_round), advice.noise_on_sum
    section.findings.append(
        Finding(f"{_RANKED} the sum of {many} clients", _known(summed.ranking), None, 0.5, cover, False)
        if numbers["noised"] or _all_changed([summed], int((~left_out).sum()))
        else Finding(f"words of any of {many} clients that their sum reveals", *_pair(recall), None, cover)
    )
    section.tables.append(
        (
            "Words read from updates",
            ("update", "rows that changed and are words of the client", "words of the client that changed", "ranking"),
            table,
        )
    )
    section.pictures.append((picture, "Words read from each client's update; clients in the order of words.csv"))
    section.files["words.csv"] = csv
    section.numbers["words"] = numbers
    section.results.append(
        f"Words: the weight {rows.name} has a row for each word, and is trained because {rows.why}. A row that "
        "changes reveals its word. The last column of the table ranks the rows by the size of their change: 1 finds "
        "the words without an error, 0.5 is a guess. It also works if noise changes all rows."
    )
    section.results.append(
        "The sum over the round's clients still reveals which words occur, but not at which client: one client has "
        f"on average {np.mean(one_of_all):.0%} of the words of all {len(in_round)} clients."
    )


def _all_changed(revealed: list[RevealedWords], rows: int) -> bool:
    """Whether every row changed in all updates, the client's words and others: noise, under which the rows that
    changed are no list of words."""
    return all(r.changed == rows > r.words for r in revealed)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _pooled(revealed: list[RevealedWords]) -> tuple[dict, dict]:
    """Precision and recall over all clients' words, each with its interval."""
    right, changed, words = (sum(getattr(r, name) for r in revealed) for name in ("right", "changed", "words"))
    return (
        {"precision": share(right, changed), "precision_interval": exact_interval(right, changed)},
        {"recall": share(right, words), "recall_interval": exact_interval(right, words)},
    )


def _pair(measured: dict) -> tuple[float, tuple[float, float]]:
    value, interval = measured.values()
    return value, interval


def _cells(*measured: dict) -> list[str]:
    cells = []
    for item in measured:
        value, (low, high) = _pair(item)
        cells.append(f"{value:.1%} ({low:.1%} to {high:.1%})")
    return cells


def _mean_of_known(values: list[float]) -> float:
    """NaN where none is known."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _ranked(auc: float) -> str:
    return "–" if np.isnan(auc) else f"{auc:.3f}"


def _meaning(ranking: float, precision: float, recall: float) -> str:
    if precision > 0.9 and recall > 0.5:
        return (
            "Anyone who sees a single update can list the words that this client's patients and doctors used, almost "
            "without errors. This includes rare words (a name, a rare diagnosis) if they are in the vocabulary."
        )
    if ranking > 0.6:
        return "The rows do not reveal the words directly, but larger changes point to words of the client."
    return "The update's rows reveal little about the client's words."


def _word_vectors_by_default(section: Section, model: str) -> None:
    """Whether the default of the run's model is still right."""
    texts = {
        "pcnn": (
            "PCNN trains pretrained word vectors further by default (model.train_vectors = true), like its authors. "
            "This default reveals the words, so it does not suit data that must not leave a hospital. Use pretrained "
            "vectors with model.train_vectors = false unless sums are secure or noise covers the updates, and "
            "compare the scores."
        ),
        "lstm": (
            "The LSTM does not train pretrained word vectors by default (model.train_vectors = false). Without "
            "pretrained vectors (task.vectors = 'learned') it learns its own, and these reveal the words."
        ),
        "tagger": (
            "The tagger does not train pretrained word vectors by default (model.train_vectors = false). Without "
            "pretrained vectors (task.vectors_path) it learns its own, and these reveal the words."
        ),
        "logistic_regression": (
            "Logistic regression does not train pretrained word vectors by default. Learned vectors reveal the "
            "words, and so does model.features = 'word_presence', whose classifier has a weight for each word."
        ),
    }
    if model in texts:
        section.means.append(texts[model])


# Labels


def _labels(section: Section, run: FinishedRun, names: list[str], client_examples: list, updates_of) -> None:
    model, prepared = run.experiment.model, run.experiment.prepared
    advice = Advice(run.experiment.recipe.privacy)
    bias = f"{model.classifier}/bias"
    reason = None
    if model.rows is not None:
        reason = (
            "a document's pairs have several labels each"
            if model.row_labels is None
            else "each token has a tag, and at every client most tokens are outside entities"
        )
    elif bias not in model.weight_names:
        reason = "the classifier has no bias (the change of its weights may also reveal labels, which was not tested)"
    if reason is not None:
        section.results.append(f"Label counts: not applicable: {reason}.")
        section.numbers["labels"] = {"not_applicable": reason}
        return
    index, classes = model.weight_names.index(bias), model.num_classes
    counts = [label_counts(examples, classes) for examples in client_examples]
    # Somebody without the updates guesses the label that is most frequent over all.
    _, everybody = arranged(run.experiment, "train")
    majority = int(np.argmax(np.sum([label_counts(examples, classes) for examples in everybody], axis=0)))
    guess = share(sum(count[majority] == count.max() for count in counts), len(counts))
    table, csv = [], [["client", "weights", "correlation", "majority_label_guessed"]]
    numbers: dict[str, object] = {"guess": guess, "labels": len(prepared.label_names)}
    for when, updates in updates_of.items():
        revealed = [revealed_labels(update[index], count) for update, count in zip(updates, counts, strict=True)]
        csv += [[name, when, r.correlation, int(r.hit)] for name, r in zip(names, revealed, strict=True)]
        hits = sum(r.hit for r in revealed)
        mean = _mean_of_known([r.correlation for r in revealed])
        interval = exact_interval(hits, len(revealed))
        numbers[when] = {"hit_rate": share(hits, len(revealed)), "interval": interval, "correlation": mean}
        low, high = interval
        cell = "–" if np.isnan(mean) else f"{mean:+.2f}"
        table.append([when, f"{share(hits, len(revealed)):.0%} ({low:.0%} to {high:.0%})", f"{guess:.0%}", cell])
    first, last = (numbers[when]["hit_rate"] for when in updates_of)
    worst = max(updates_of, key=lambda when: numbers[when]["hit_rate"])
    section.findings.append(
        Finding(
            f"share of clients whose most frequent label the classifier's bias reveals ({worst})",
            numbers[worst]["hit_rate"],
            numbers[worst]["interval"],
            guess,
            f"noise on the update or the sum; {advice.update}",
        )
    )
    section.tables.append(
        (
            "Labels read from the change of the classifier's bias",
            ("weights", "most frequent label right", "right without an update", "rank correlation with the counts"),
            table,
        )
    )
    section.files["labels.csv"] = csv
    section.numbers["labels"] = numbers
    best, low = max(first, last), numbers[worst]["interval"][0]
    section.results.append(
        f"Labels: at {best:.0%} of the clients the bias of the classifier rises most for the client's most frequent "
        f"label; guessing the label that is most frequent over all clients is right for {guess:.0%}."
    )
    section.means.append(
        "A hospital's distribution of cases over the labels can be read from its update better than by a guess."
        if low > guess
        else "A hospital's most frequent label was read more often than guessed, but there were too few clients to "
        "be sure."
        if best > guess
        else "For these clients, reading the labels from the bias was no better than guessing the label that is most "
        "frequent over all clients. With few clients the interval is wide."
    )


# Sentences


def _spans(
    section: Section, run: FinishedRun, seed: int, client_examples: list, updates: list, say: Callable[[str], None]
) -> None:
    experiment, advice = run.experiment, Advice(run.experiment.recipe.privacy)
    model, inputs = experiment.model, experiment.prepared.inputs
    if (reason := span.not_applicable(inputs, model)) is not None:
        section.results.append(f"Span check of the encoder's first query projection: not applicable: {reason}.")
        section.numbers["span"] = {"not_applicable": reason}
        return
    say("the span check of the encoder")
    examples, draw = client_examples[0], np.random.default_rng([seed, 3])
    count = len(examples["y"])
    singles = [np.array([row]) for row in draw.choice(count, size=min(SENTENCES, count), replace=False)]
    size = experiment.recipe.algorithm.options.batch_size
    batch = [draw.choice(count, size=min(size, count), replace=False)]
    keras = model.keras_model(run.weights)
    parts = span.batches(examples, [*singles, *batch])
    gradients = [span.query_gradient(model, keras, part) for part in parts]
    gradients.append(span.query_change(model, updates[0]))
    present = [span.pieces_at_places(part) for part in [*parts, examples]]
    vectors = span.embeddings_of(keras, inputs.vocabulary_size)
    results = span.check(gradients, present, vectors)
    groups = {
        "a gradient of one sentence": results[: len(singles)],
        f"a gradient of a batch of {len(batch[0])}": results[len(singles) : -1],
        f"all local training of a client with {count} sentences": results[-1:],
    }
    table, numbers = [], collections.OrderedDict()
    for what, spanned_batches in groups.items():
        pieces, right, wrong, tried = (
            sum(getattr(spanned, name) for spanned in spanned_batches) for name in ("pieces", "right", "wrong", "tried")
        )
        low, high = exact_interval(right, pieces)
        false = share(wrong, tried - pieces)
        rank, width = max(spanned.rank for spanned in spanned_batches), spanned_batches[0].width
        numbers[what] = {
            "found": share(right, pieces),
            "interval": (low, high),
            "false_positives": false,
            "rank": rank,
            "width": width,
        }
        cell = f"{share(right, pieces):.1%} ({low:.1%} to {high:.1%})"
        table.append([what, cell, f"{false:.3%}", f"{rank} of {width}"])
        section.findings.append(
            Finding(
                f"share of word pieces found at their positions by {what} (wrong ones: {false:.2%})",
                share(right, pieces),
                (low, high),
                false,
                "more steps and examples between two messages; frozen embeddings and first layer; noise; "
                + advice.update,
            )
        )
    section.tables.append(
        (
            "Pieces whose vectors lie in the span of the query projection's gradient",
            ("what is seen", "word pieces found at their position", "other word pieces that pass", "rank"),
            table,
        )
    )
    section.numbers["span"] = numbers
    section.results.append(
        "Sentences: the gradient of the encoder's first query projection was tested against every word piece at "
        "every position. If pieces are found and few others pass, the sentence can be reconstructed word by word."
    )
    single = numbers["a gradient of one sentence"]
    section.means.append(
        "Anyone who sees the gradient of a single sentence can read most of that sentence. A client sends the sum of "
        "many steps; the last row shows how much of the risk remains."
        if single["found"] > 0.5 and single["false_positives"] < 0.05
        else "The check could not reconstruct sentences here."
    )

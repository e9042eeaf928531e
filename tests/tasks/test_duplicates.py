"""Examples that stand in two splits are counted, without any of their text."""

from __future__ import annotations

from types import SimpleNamespace

from tests.upper_floors import SECRET, builder, sentence, text_recipe, tiny, write_json, write_recipe
from tff_re.recipes.reading import load
from tff_re.tasks.duplicates import duplicate_notes


def text(words, sample_id=""):
    return SimpleNamespace(text=words, sample_id=sample_id)


def pair(words, head, tail):
    return SimpleNamespace(text=words, head=head, tail=tail)


def test_texts_are_compared_without_width_case_and_blanks():
    train = [text("Fever  today"), text("ＡＢＣ 发烧"), text("cough")]
    dev = [text("fever today "), text("abc 发烧"), text("coughs"), text("FEVER\tTODAY")]
    assert duplicate_notes({"train": train, "dev": dev, "test": [text("Coughs"), text("new")]}) == (
        "duplicates: 3 of 4 dev examples (75.0%) are also in train",
        "duplicates: 1 of 2 test examples (50.0%) are also in dev",
    )
    assert duplicate_notes({"train": train, "test": [text("new")]}) == duplicate_notes({"train": train}) == ()


def test_of_pairs_the_mentions_count_too_and_of_documents_the_text():
    train = [pair("a binds b", (0, 1), (8, 9))]
    assert duplicate_notes({"train": train, "test": [pair("a binds b", (8, 9), (0, 1))]}) == ()
    assert len(duplicate_notes({"train": train, "test": [pair("A  binds b", (0, 1), (9, 10))]})) == 1
    document = SimpleNamespace(document=text("one text"))
    assert len(duplicate_notes({"train": [document], "test": [document]})) == 1


def corpus(folder, same):
    """Four dialogues of ten sentences; every second one says the same in all of them."""
    dialogues = {}
    for d in range(4):
        texts = [f"{SECRET}{i}" if same and i % 2 else f"第{d}{i}句话" for i in range(10)]
        lines = [sentence(i, words, *["1"] * (i % 3 == 0)) for i, words in enumerate(texts)]
        dialogues[f"d{d}"] = {"diagnosis": "流感", "dialogue": lines}
    return write_json(folder / f"corpus-{same}.json", dialogues)


def notes_of(folder, same, *overrides):
    recipe = load(str(write_recipe(folder / "r.toml", text_recipe(corpus(folder, same), test_share=0.3))), overrides)
    return [note for note in builder().build(recipe).notes if note.startswith("duplicates")]


def test_the_notes_of_a_run_say_it_with_dev_and_without_text(tmp_path):
    assert notes_of(tmp_path, same=False) == []
    (note,) = notes_of(tmp_path, same=True)
    assert note.startswith("duplicates: ") and note.endswith(" are also in train")
    notes = notes_of(tmp_path, True, "choice.dev_share=0.4")
    splits = [(note.split(" examples")[0].split()[-1], note.split(" are also in ")[1]) for note in notes]
    assert splits == [("test", "train"), ("dev", "train"), ("test", "dev")]
    assert SECRET not in "".join(notes)


def test_made_up_numbers_have_no_texts():
    assert not any(note.startswith("duplicates") for note in builder().build(tiny()).notes)

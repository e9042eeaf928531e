"""`validate` and `validations`: signed results of an export at several sites, as a user types them."""

from __future__ import annotations

import csv
import json
import re
import shutil
import stat

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from datasets.errors import DataError
from datasets.files import sha256_of
from tests.exports_for_tests import export_of
from tests.runs.test_sentence_relations import write_pgr
from tests.upper_floors import SECRET, command, refusal
from tff_re.errors import UserError
from tff_re.sites.keys import public_text
from tff_re.sites.validation import canonical, read_result, signed_file
from tff_re.sites.validations import notes, read_keys, read_results, to_csv, total
from tff_re.tasks.metrics import classification_metrics

pytestmark = pytest.mark.xdist_group("exports")

SITES = ("aachen", "bonn", "celle")
KEYS = {site: Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n, site in enumerate(SITES)}
CONFUSION = {"aachen": [[3, 1], [2, 4]], "bonn": [[0, 1], [0, 3]], "celle": [[9, 0], [5, 1]]}


def content_of(site, **changes):
    confusion = np.array(CONFUSION[site])
    examples = int(confusion.sum())
    metrics = classification_metrics({"examples": examples, "loss": examples * 0.3, "confusion": confusion}, [1])
    return {
        "name": site,
        "export": "a" * 64,
        "file": f"{SITES.index(site)}" * 64,
        "time": "2026-11-26T07:00:00Z",
        "tff_re": "0.1.0",
        "counts": {"examples": examples},
        "metrics": metrics,
        "labels": ["none", "related"],
        "positive_labels": [1],
        "by_class": None,
        "confusion": confusion.tolist(),
        **changes,
    }


@pytest.fixture
def results(tmp_path):
    """A folder with a result of each site."""
    folder = tmp_path / "results"
    folder.mkdir()
    for site, key in KEYS.items():
        (folder / f"{site}.json").write_bytes(signed_file(content_of(site), key))
    return folder


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text("".join(f'{site} = "{public_text(key)}"\n' for site, key in KEYS.items()), "utf-8")
    return path


def test_what_is_signed_is_read_again(results):
    content = read_result(results / "aachen.json")
    assert {key: content[key] for key in content_of("aachen")} == content_of("aachen")
    signed = canonical(content)
    assert b"signature" not in signed and b" " not in signed.replace(b"tff-re validation", b"")
    assert json.loads(signed) == {key: value for key, value in content.items() if key != "signature"}


def test_every_flipped_digit_is_refused(tmp_path, results):
    data = (results / "aachen.json").read_bytes()
    path, digits = tmp_path / "flipped.json", [n for n, byte in enumerate(data) if chr(byte).isdigit()]
    assert len(digits) > 100
    for at in digits:
        path.write_bytes(data[:at] + str((int(chr(data[at])) + 1) % 10).encode() + data[at + 1 :])
        with pytest.raises(UserError, match=r"flipped.json: (its signature does not fit|is not)") as caught:
            read_result(path)
        assert "\n" not in str(caught.value)


DAMAGES = {
    "cut": lambda data: data[:-20],
    "empty": lambda data: b"",
    "a list": lambda data: b"[]\n",
    "lines end otherwise": lambda data: data.replace(b"\n", b"\r\n"),
    "another key": lambda data: data.replace(b'"name"', b'"text": "x",\n "name"'),
    "a key less": lambda data: data.replace(b' "name": "aachen",\n', b""),
    "not finite": lambda data: re.sub(rb'"loss": [0-9.]+', b'"loss": NaN', data),
    "too large": lambda data: re.sub(rb'"loss": [0-9.]+', b'"loss": 1e999', data),
    "nested": lambda data: b"[" * 100_000,
    "another version": lambda data: data.replace(b'"format_version": 1', b'"format_version": 2'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_malformed_result_is_one_line(damage, capsys, results, keys):
    path = results / "aachen.json"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    out = results.parent / "table.csv"
    refusal(command(capsys, "validations", results, "--keys", keys, "--out", out), "aachen.json")
    assert not out.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["none", "\x1b[31m"]},
        {"labels": ["none"]},
        {"counts": {"examples": 11}},
        {"counts": {"examples": True}},
        {"metrics": {"accuracy": float("inf")}},
        {"metrics": {"A text": 0.5}},
        {"positive_labels": [2]},
        {"name": "=cmd"},
        {"text": "x"},
    ],
)
def test_only_numbers_names_and_digests_are_signed(change):
    with pytest.raises((UserError, ValueError)):
        signed_file(content_of("aachen", **change), KEYS["aachen"])


def test_foreign_keys_names_and_exports_are_refused(capsys, results, keys):
    typed = ("validations", results, "--keys", keys)
    foreign = Ed25519PrivateKey.from_private_bytes(bytes([9] * 32))
    path = results / "bonn.json"
    path.write_bytes(signed_file(content_of("bonn"), foreign))
    refusal(command(capsys, *typed), "bonn.json: its key ed25519:", "is not listed")
    path.write_bytes(signed_file(content_of("bonn"), KEYS["celle"]))
    refusal(command(capsys, *typed), "says that it is of bonn, but the key is listed as that of celle")
    content = {**content_of("bonn", export="b" * 64)}
    path.write_bytes(signed_file(content, KEYS["bonn"]))
    refusal(command(capsys, *typed), "bonn.json: evaluates another export (bbbbbbbbbbbb…) than that of aachen.json")
    with pytest.raises(UserError, match=r"aachen.json: evaluates another export .* than that of the export given"):
        read_results(results, read_keys(keys), "b" * 64)


def test_the_total_is_that_of_all_examples(results, keys):
    read = read_results(results, read_keys(keys))
    confusion = sum(np.array(rows) for rows in CONFUSION.values())
    counts, metrics = total(read)
    examples = confusion.sum()
    wanted = classification_metrics({"examples": examples, "loss": examples * 0.3, "confusion": confusion}, [1])
    assert counts == {"examples": examples} and metrics == pytest.approx(wanted)
    (results / "bonn.json").write_bytes(signed_file(content_of("bonn", confusion=None), KEYS["bonn"]))
    without = total(read_results(results, read_keys(keys)))[1]
    assert without == pytest.approx({name: wanted[name] for name in ("accuracy", "loss")})


def test_no_total_where_examples_may_count_twice_or_classes_differ(results, keys):
    def read():
        found = read_results(results, read_keys(keys))
        return total(found), "\n".join(notes(found)), to_csv(found, total(found)).decode()

    assert read()[1] == ""
    again = results / "aachen2.json"
    again.write_bytes(signed_file(content_of("aachen", file="7" * 64, name=None), KEYS["aachen"]))
    whole, said, table = read()
    assert whole is None and "aachen has 2 results (aachen.json, aachen2.json)" in said and "\ntotal," not in table
    again.unlink()
    (results / "bonn.json").write_bytes(signed_file(content_of("bonn", file="0" * 64), KEYS["bonn"]))
    whole, said, _ = read()
    assert whole is None and "aachen, bonn evaluated the same file" in said
    (results / "bonn.json").write_bytes(signed_file(content_of("bonn", positive_labels=None), KEYS["bonn"]))
    whole, said, _ = read()
    assert whole is None and "different classes" in said


def test_a_total_of_entities_is_of_their_counts_and_of_bags_only_counts(tmp_path, keys):
    found = {"true_positives": 2, "predicted": 4, "actual": 5, "overlapping_predicted": 3, "overlapping_actual": 3}
    for counts, metrics in (
        ({"texts": 3, **found}, {"precision": 0.5, "recall": 0.4, "f1": 4 / 9, "lenient_precision": 0.75}),
        ({"bags": 3, "facts": 2}, {}),
    ):
        for site in SITES[:2]:
            of_site = content_of(site, counts=counts, metrics={"f1": 0.5}, confusion=None, positive_labels=None)
            (tmp_path / f"{site}.json").write_bytes(signed_file(of_site, KEYS[site]))
        whole = total(read_results(tmp_path, read_keys(keys)))
        assert whole[0] == {name: 2 * value for name, value in counts.items()}
        assert {name: whole[1].get(name) for name in metrics} == pytest.approx(metrics)
        assert bool(whole[1]) == bool(metrics)


def test_keys_are_listed_in_a_file_a_table_or_a_folder(tmp_path, keys):
    listed = read_keys(keys)
    assert listed == {public_text(key): site for site, key in KEYS.items()}
    (tmp_path / "site.toml").write_text("[sites]\n" + keys.read_text("utf-8"), "utf-8")
    assert read_keys(tmp_path / "site.toml") == listed
    folder = tmp_path / "keys"
    folder.mkdir()
    with pytest.raises(UserError, match=r"has no file \*.toml"):
        read_keys(folder)
    for number, line in enumerate(keys.read_text("utf-8").splitlines()):
        (folder / f"{number}.toml").write_text(line, "utf-8")
    assert read_keys(folder) == listed
    (folder / "again.toml").write_text(line.replace("celle", "dresden"), "utf-8")
    with pytest.raises(UserError, match="listed twice"):
        read_keys(folder)
    keys.write_text('aachen = "ed25519:AAAA"\n', "utf-8")
    with pytest.raises(UserError, match="'aachen' is not the line of a site"):
        read_keys(keys)


# As a user types it, on an export


@pytest.fixture
def site(tmp_path, capsys):
    """A site's key and file, made by the command line."""
    key = tmp_path / "aachen.pem"
    made = command(capsys, "validate", "--make-key", "--key", key, "--name", "aachen")
    assert made.code == 0 and re.fullmatch(r'aachen = "ed25519:[A-Za-z0-9+/]{43}="\n', made.out)
    assert "keep it" in made.err and stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    again = command(capsys, "validate", "--make-key", "--key", key, "--name", "aachen")
    assert (again.code, again.out, again.err) == (0, made.out, "") and key.read_bytes() == before
    (tmp_path / "keys.toml").write_text(made.out, "utf-8")
    return key


def test_an_export_is_validated_and_the_table_has_its_numbers(tmp_path, capsys, site):
    export, file, results = export_of("blinded relations of words"), write_pgr(tmp_path / "t.tsv"), tmp_path / "r"
    results.mkdir()
    evaluated = command(capsys, "evaluate", export, "--file", file, "--dataset", "pgr")
    typed = ("validate", export, "--file", file, "--dataset", "pgr", "--key", site, "--name", "aachen")
    done = command(capsys, *typed, "--out", results / "aachen.json")
    assert done.code == 0 and done.err == "" and SECRET not in done.out
    text = (results / "aachen.json").read_text("utf-8")
    content = json.loads(text)
    assert SECRET not in text and file.name not in text
    assert content["file"] == sha256_of(file) and content["export"] == sha256_of(export / "SHA256SUMS")
    assert content["counts"] == {"examples": 24} and np.sum(content["confusion"]) == 24
    assert re.search(rf"accuracy │ +{content['metrics']['accuracy']:.4f}", evaluated.out)
    assert content["labels"] == json.loads((export / "labels.json").read_text("utf-8"))
    refusal(command(capsys, *typed, "--out", results / "aachen.json"), "is there already")
    shown = command(
        *(capsys, "validations", results, "--keys", tmp_path / "keys.toml"),
        *("--export", export, "--out", tmp_path / "table.csv"),
    )
    assert shown.code == 0 and shown.err == "" and "aachen" in shown.out and "total" not in shown.out
    (row,) = csv.DictReader((tmp_path / "table.csv").read_text("utf-8").splitlines())
    assert row["site"] == "aachen" and float(row["accuracy"]) == content["metrics"]["accuracy"]
    other = shutil.copytree(export, tmp_path / "other")
    (other / "SHA256SUMS").write_text((other / "SHA256SUMS").read_text("utf-8") + f"{'0' * 64}  x\n", "utf-8")
    typed = command(capsys, "validations", results, "--keys", tmp_path / "keys.toml", "--export", other)
    refusal(typed, "aachen.json: evaluates another export")
    less = command(
        *(capsys, "validate", export, "--file", file, "--dataset", "pgr", "--key", site),
        *("--no-classes", "--out", results / "less.json"),
    )
    content = read_result(results / "less.json")
    assert less.code == 0 and content["confusion"] is content["by_class"] is content["name"] is None
    again = command(capsys, "validations", results, "--keys", tmp_path / "keys.toml")
    assert again.code == 0 and "note: aachen has 2 results" in again.out and "total  " not in again.out


def test_nothing_is_written_where_something_is_wrong(tmp_path, capsys, site, monkeypatch):
    export, file, out = export_of("blinded relations of words"), write_pgr(tmp_path / "t.tsv"), tmp_path / "out.json"
    before = sorted(tmp_path.iterdir())
    typed = ("validate", export, "--file", file, "--dataset", "pgr", "--out", out)
    refusal(command(capsys, *typed, "--key", tmp_path / "no.pem"), "no.pem: no such file", "validate --make-key")
    refusal(
        command(capsys, *typed, "--key", file), "other users" if file.stat().st_mode & 0o077 else "not an Ed25519 key"
    )
    refusal(command(capsys, *typed, "--key", site, "--name", "a b"), "--name a b: use letters")
    refusal(command(capsys, "validate", export, "--key", site, "--file", file), "give EXPORT, --file and --out")
    refusal(command(capsys, "validate", export, "--key", site, "--make-key"), "--make-key evaluates nothing")
    nowhere = ("validate", export, "--file", file, "--key", site, "--out", tmp_path / "no" / "out.json")
    refusal(command(capsys, *nowhere), "no such folder; create it first")
    refusal(command(capsys, "validate", tmp_path, "--file", file, "--key", site, "--out", out), "holds no export.json")

    def full(path, data):
        raise DataError("cannot be written (No space left on device)", path=path, remedy="free some space")

    monkeypatch.setattr("datasets.files.write_atomically", full)
    refusal(command(capsys, *typed, "--key", site), "No space left")
    assert sorted(tmp_path.iterdir()) == before

"""The vocabulary of a run across sites: a site's half and the coordinator's.

1. A site sends a keyed digest of each word of its clients' training texts, how often the word occurs, how many of its
   clients hold it, and its signature of (run, its name, digest). The coordinator does not have the key of the digests.
2. The coordinator asks a site for words, and gives as evidence other sites' signatures of the same digests. The site
   shows a word if its own holders and the other sites that signed its digest are at least `min_clients` together.

Another site counts once, whatever number it claims, and the coordinator's numbers count for nothing. c sites that sign
digests of words that they do not hold lower the threshold by at most c. A site gets evidence for words of its own only,
and no more than the threshold needs, so that it learns nothing of words which do not pass.
"""

from __future__ import annotations

import collections
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidSignature

from datasets.text.vocabulary import FIRST_WORD_ID, RESERVED
from tff_re.errors import UserError
from tff_re.sites.keys import SIGNATURE_BYTES, public_text
from tff_re.sites.messages import Malformed, Refused
from tff_re.sites.policy import Site

_log = logging.getLogger("tff_re.sites")

DIGEST_BYTES = 16
LONGEST_WORD = 10_000
"""Letters of a word that the coordinator takes: a text without a gap is one."""

KEYED, LOCAL = "keyed", "local"

Ask = Callable[[dict[str, tuple[dict, Sequence[np.ndarray]]]], dict[str, tuple[dict, list[np.ndarray]]]]
"""Site -> message, to site -> answer; see `Sites.ask_every`."""


@dataclass(frozen=True)
class WordCounts:
    """Words of the clients' training texts: how often each occurs, and how many clients hold it."""

    words: list[str]
    counts: np.ndarray
    holders: np.ndarray

    def digests(self, secret: bytes, run: str) -> np.ndarray:
        """uint8 [n, 16], see `digests`."""
        return digests(secret, run, "word", self.words)


def digests(secret: bytes, run: str, kind: str, texts: Iterable[str]) -> np.ndarray:
    """uint8 [n, 16]: texts as sites show them to a coordinator who must not know them, keyed by the sites' secret
    (HMAC-SHA-256); other ones in each run."""
    messages = (f"{run} {kind} {text}".encode("utf-8", "surrogatepass") for text in texts)
    made = [hmac.digest(secret, message, "sha256")[:DIGEST_BYTES] for message in messages]
    return np.frombuffer(b"".join(made), np.uint8).reshape(len(made), DIGEST_BYTES)


def secret_check(secret: bytes, run: str) -> str:
    """By which the coordinator sees whether the sites' secrets are the same."""
    return hmac.digest(secret, run.encode(), "sha256").hex()


def signed_content(run: str, site: str, digest: bytes) -> bytes:
    """What a site signs: that a client of it holds the word of this digest in this run."""
    return b"\0".join((b"tff-re: a client holds the word", run.encode(), site.encode(), digest))


# A site's half


class WordsOfSite:
    """What a site answers about the words of a run."""

    def __init__(self, site: Site, run: str, found: WordCounts, min_clients: int):
        """Prepares.

        Args:
          site: its file.
          run: the run's id.
          found: the words of its clients.
          min_clients: the recipe's.

        Raises:
          Refused: fewer clients than this site asks for, or it has a secret and no key of another site.
          UserError: a file of the site's own is missing or malformed.
        """
        least = site.options.vocabulary.least_clients
        if min_clients < least:
            raise Refused(
                f"it shows words that at least {least} clients hold (vocabulary.least_clients), and task.min_clients "
                f"is {min_clients}; raise task.min_clients"
            )
        self._site, self._run, self._found, self._min_clients = site, run, found, min_clients
        self._secret = site.secret()
        if self._secret is None:
            return
        self._others = site.others()
        if not self._others:
            raise Refused(
                "it has a secret for words (vocabulary.secret) and no key of another site to check who holds a word; "
                "its operator lists the others' keys in [sites] (`site SITE.TOML --key` prints them there), or leaves "
                "the secret out, to show only words that enough of its own clients hold"
            )
        self._key = site.signing_key()

    def counted(self) -> tuple[dict, list[np.ndarray]]:
        """The answer to `words`: counts by signed digests, or of the words that enough of this site's clients hold.

        Keyed: {check, key, others}, uint8 [n, 16], int64 [n], int64 [n], uint8 [n, 64]: digests in their order, how
        often, held by how many, signatures. Local: {words}, int64 [n], int64 [n].
        """
        found = self._found
        if self._secret is None:
            enough = found.holders >= self._min_clients
            words = [word for word, shown in zip(found.words, enough, strict=True) if shown]
            self._say(len(words))
            return {"words": words}, [found.counts[enough], found.holders[enough]]
        rows = found.digests(self._secret, self._run)
        order = np.lexsort(rows.T)
        name, rows = self._site.options.name, rows[order]
        signed = (self._key.sign(signed_content(self._run, name, row.tobytes())) for row in rows)
        signatures = np.frombuffer(b"".join(signed), np.uint8).reshape(len(rows), SIGNATURE_BYTES)
        table = {
            "check": secret_check(self._secret, self._run),
            "key": public_text(self._key),
            "others": dict(self._site.options.sites),
        }
        return table, [rows, found.counts[order], found.holders[order], signatures]

    def shown(self, table: Mapping, arrays: Sequence[np.ndarray]) -> list[str]:
        """The answer to `reveal`: the words of the digests that come.

        Args:
          table: `signers`: names of sites.
          arrays: uint8 [m, 16], digests of words of this site; int32 [k], int32 [k], uint8 [k, 64]: evidence, of which
            of them, by which of the signers, the signature.

        Raises:
          Refused: a digest is not of a word here, a signature does not hold, or fewer clients hold a word than
            `min_clients`; then no word is shown. Malformed: other arrays.
        """
        if self._secret is None:
            raise Refused("words are shown only with the sites' secret")
        wanted, rows, signers, signatures = _evidence(arrays)
        names = [str(name) for name in table["signers"]]
        if not (_within(rows, len(wanted)) and _within(signers, len(names))):
            raise Malformed("the evidence names a word or a site that the message does not have")
        signed_by: dict[int, set[str]] = collections.defaultdict(set)
        for row, signer, signature in zip(rows.tolist(), signers.tolist(), signatures, strict=True):
            self._require_signed(names[signer], wanted[row].tobytes(), signature.tobytes())
            signed_by[row].add(names[signer])
        own = {row.tobytes(): place for place, row in enumerate(self._found.digests(self._secret, self._run))}
        shown = []
        for number, digest in enumerate(wanted):
            place = own.get(digest.tobytes())
            if place is None:
                raise Refused("it was asked for a word that it does not hold")
            held = int(self._found.holders[place]) + len(signed_by[number])
            if held < self._min_clients:
                raise Refused(
                    f"it was asked for a word that {held} clients hold by what other sites signed, and task.min_clients"
                    f" is {self._min_clients}"
                )
            shown.append(self._found.words[place])
        self._say(len(shown))
        return shown

    def _require_signed(self, name: str, digest: bytes, signature: bytes) -> None:
        """Raises Refused where this other site did not sign that a client of it holds the word in this run."""
        key = self._others.get(name)
        if key is None:
            raise Refused(f"the evidence for a word is of {_plain(name)}, which its [sites] does not list")
        try:
            key.verify(signature, signed_content(self._run, name, digest))
        except InvalidSignature:
            raise Refused(
                f"the evidence for a word is not signed by the site {name} for this run; either the coordinator is not "
                f"honest, or its [sites] has an old key of {name}"
            ) from None

    def _say(self, number: int) -> None:
        _log.info("run %s: %d of %d words are shown", self._run[:8], number, len(self._found.words))


def _evidence(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    forms = [("|u1", (DIGEST_BYTES,)), ("<i4", ()), ("<i4", ()), ("|u1", (SIGNATURE_BYTES,))]
    if [(a.dtype.str, a.shape[1:]) for a in arrays] != forms or any(a.ndim == 0 for a in arrays):
        raise Malformed("the message has other arrays than digests of words and evidence for them")
    if len({len(array) for array in arrays[1:]}) > 1:
        raise Malformed("the parts of the evidence have different lengths")
    return tuple(arrays)


def _within(places: np.ndarray, count: int) -> bool:
    return bool(((places >= 0) & (places < count)).all())


def _plain(name: str) -> str:
    return "".join(letter for letter in name if letter.isprintable())[:63]


# The coordinator's half


def agree_on_words(ask: Ask, run: str, sites: Sequence[str], kind: str, options) -> tuple[str, ...] | None:
    """The vocabulary as `Vocabulary.build` would make it of all texts, but for words that no site shows.

    With one client a site it is the same. A site with several clients counts once at the others, so that a word which
    few sites hold may be missing.

    Args:
      ask: asks sites.
      run: the run's id.
      sites: all, in their order.
      kind: `KEYED` or `LOCAL`, of all.
      options: the task's, with min_count, min_clients and max_words.

    Returns:
      The words in their order; None where a tokenizer is given.

    Raises:
      UserError: answers do not fit together or are malformed, or no word is left.
    """
    answers = ask({site: ({"kind": "words", "run": run}, ()) for site in sites})
    without = [site for site, (_, arrays) in answers.items() if not arrays]
    if len(without) == len(answers):
        return None
    if without:
        raise UserError(f"site {without[0]} counts no words, and others do; use the same recipe and version everywhere")
    if kind == LOCAL:
        totals = _of_local(answers, options)
    else:
        totals = _of_keyed(ask, run, {site: _List.of(site, *answers[site]) for site in sites}, options)
    if not totals:
        raise UserError("no word is left for the vocabulary; lower task.min_count or task.min_clients")
    words = sorted(totals, key=lambda word: (-totals[word], word))
    return tuple(words if options.max_words is None else words[: options.max_words - FIRST_WORD_ID])


def require_one_secret(checks: Mapping[str, str]) -> None:
    """Raises UserError where the sites' `secret_check`s differ."""
    if len(set(checks.values())) > 1:
        raise UserError("the sites' secrets for the vocabulary differ; give all of them the same file")


@dataclass(frozen=True)
class _List:
    """A site's signed list of words."""

    check: str
    key: str
    others: dict[str, str]
    place_of: dict[bytes, int]
    counts: np.ndarray
    holders: np.ndarray
    signatures: np.ndarray

    @classmethod
    def of(cls, site: str, table: Mapping, arrays: Sequence[np.ndarray]) -> _List:
        """Raises UserError for what is no such list."""
        forms = [("|u1", (DIGEST_BYTES,)), ("<i8", ()), ("<i8", ()), ("|u1", (SIGNATURE_BYTES,))]
        texts = (table.get("check"), table.get("key"))
        others = table.get("others")
        fits = all(isinstance(text, str) for text in texts) and isinstance(others, dict)
        fits = fits and all(isinstance(key, str) for key in others.values())
        fits = fits and [(a.dtype.str, a.shape[1:]) for a in arrays] == forms and all(a.ndim for a in arrays)
        if not fits or len({len(array) for array in arrays}) > 1:
            raise UserError(f"site {site}: its list of words is malformed; use the same version of tff-re everywhere")
        rows, counts, holders, signatures = arrays
        places = {row.tobytes(): place for place, row in enumerate(rows)}
        _require_counts(site, len(places) == len(rows), counts, holders)
        return cls(*texts, others, places, counts, holders, signatures)


def _require_counts(site: str, unique: bool, counts: np.ndarray, holders: np.ndarray) -> None:
    if not unique or (holders < 1).any() or (counts < holders).any():
        raise UserError(
            f"site {site}: its list names a word twice, or says that fewer than one client holds it, or more clients "
            "than it occurs; the site is left out by leaving it out of --sites"
        )


def _of_keyed(ask: Ask, run: str, lists: dict[str, _List], options) -> dict[str, int]:
    """Word -> occurrences at all sites."""
    require_one_secret({site: own.check for site, own in lists.items()})
    _require_known_keys(lists)
    keys = (
        (digest, int(own.counts[place]), int(own.holders[place]))
        for own in lists.values()
        for digest, place in own.place_of.items()
    )
    total = passing(keys, min_count=options.min_count, min_clients=options.min_clients)
    asked = {site: _request(run, site, lists, total, options.min_clients) for site in lists}
    wanted = {site: [row.tobytes() for row in arrays[0]] for site, (_, arrays) in asked.items() if len(arrays[0])}
    answers = ask({site: asked[site] for site in wanted})
    word_of: dict[bytes, str] = {}
    for site, digests_ in wanted.items():
        words = _words_of(site, answers[site][0].get("words"), len(digests_))
        for digest, word in zip(digests_, words, strict=True):
            if word_of.setdefault(digest, word) != word:
                raise UserError(f"site {site} shows another word than the site before it for the same digest")
    if len(set(word_of.values())) < len(word_of):
        raise UserError("the sites show one word for two digests; one of them does not follow the protocol")
    left = len(total) - len(word_of)
    _log.info("run %s: %d words are in the vocabulary, %d were not shown by any site", run[:8], len(word_of), left)
    return {word: total[digest] for digest, word in word_of.items()}


def _request(run: str, site: str, lists: dict[str, _List], total: Mapping, min_clients: int) -> tuple[dict, list]:
    """The message to a site: the words that it may show, with the evidence of as many other sites as that needs."""
    own, names = lists[site], list(lists)
    wanted, rows, signers, signatures = [], [], [], []
    for digest, place in own.place_of.items():
        needed = max(0, min_clients - int(own.holders[place]))
        others = [n for n, name in enumerate(names) if name != site and digest in lists[name].place_of][:needed]
        if digest not in total or len(others) < needed:
            continue
        for number in others:
            other = lists[names[number]]
            rows.append(len(wanted))
            signers.append(number)
            signatures.append(other.signatures[other.place_of[digest]].tobytes())
        wanted.append(digest)
    arrays = [
        np.frombuffer(b"".join(wanted), np.uint8).reshape(len(wanted), DIGEST_BYTES),
        np.array(rows, np.int32),
        np.array(signers, np.int32),
        np.frombuffer(b"".join(signatures), np.uint8).reshape(len(signatures), SIGNATURE_BYTES),
    ]
    return {"kind": "reveal", "run": run, "signers": names}, arrays


def _require_known_keys(lists: dict[str, _List]) -> None:
    """Raises UserError where a site does not have the key of another, whose signatures it could not check."""
    for site, own in lists.items():
        for name, other in lists.items():
            known = own.others.get(name, other.key if name == site else None)
            if known != other.key:
                what = "no key" if known is None else "another key"
                raise UserError(
                    f"site {site}: its site.toml lists {what} of the site {name} in [sites]; its operator gets the key "
                    f"that `site SITE.TOML --key` prints from {name}'s operator"
                )


def _of_local(answers: Mapping[str, tuple[dict, Sequence[np.ndarray]]], options) -> dict[str, int]:
    """Word -> occurrences at the sites at which enough clients hold it."""
    found = []
    for site, (table, arrays) in answers.items():
        if [(array.dtype.str, array.ndim) for array in arrays] != [("<i8", 1)] * 2 or len(arrays[0]) != len(arrays[1]):
            raise UserError(f"site {site}: its list of words is malformed; use the same version of tff-re everywhere")
        words = _words_of(site, table.get("words"), len(arrays[0]))
        _require_counts(site, len(set(words)) == len(words), *arrays)
        found.extend(zip(words, arrays[0].tolist(), arrays[1].tolist(), strict=True))
    return passing(found, min_count=options.min_count, min_clients=options.min_clients)


def _words_of(site: str, words: object, count: int) -> list[str]:
    """A site's answer as that number of words. Raises UserError for anything else."""
    fits = isinstance(words, list) and len(words) == count
    if not fits or not all(isinstance(w, str) and w not in RESERVED and len(w) <= LONGEST_WORD for w in words):
        raise UserError(f"site {site}: what it shows are not {count} words; use the same version of tff-re everywhere")
    return words


def passing(counts: Iterable[tuple], *, min_count: int, min_clients: int) -> dict:
    """Key -> occurrences over all sites, of those words that occur and are held often enough.

    Args:
      counts: (key, occurrences, holders) of every site and word.
      min_count, min_clients: see `Vocabulary.build`.
    """
    total, holders = collections.Counter(), collections.Counter()
    for key, count, held in counts:
        total[key] += count
        holders[key] += held
    return {key: count for key, count in total.items() if count >= min_count and holders[key] >= min_clients}

"""The vocabulary of a run across sites, with a site's half and the coordinator's half.

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
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature

from datasets.text.vocabulary import FIRST_WORD_ID, RESERVED
from tff_re.errors import UserError
from tff_re.runtime.events import VOCABULARY_MADE, WORDS_SENT
from tff_re.sites import protocol
from tff_re.sites.fields import DIGEST_BYTES
from tff_re.sites.keys import SIGNATURE_BYTES, public_text
from tff_re.sites.messages import Refused
from tff_re.sites.policy import Site

_log = logging.getLogger("tff_re.sites")

KEYED, LOCAL = "keyed", "local"

Ask = Callable[[dict[str, protocol.Question]], dict[str, Any]]
"""Site -> question, to site -> answer; see `Sites.ask_every`."""


@dataclass(frozen=True)
class WordCounts:
    """Word counts of the clients' training texts: how often each word occurs, and how many clients hold it."""

    words: list[str]
    counts: np.ndarray
    holders: np.ndarray

    def digests(self, secret: bytes, run: str) -> np.ndarray:
        """uint8 [n, 16], see `digests`."""
        return digests(secret, run, "word", self.words)


def digests(secret: bytes, run: str, kind: str, texts: Iterable[str]) -> np.ndarray:
    """Return keyed digests of texts (uint8 [n, 16]) for a coordinator who must not know the texts.

    They are HMAC-SHA-256 with the sites' secret, and differ between runs.
    """
    messages = (f"{run} {kind} {text}".encode("utf-8", "surrogatepass") for text in texts)
    made = [hmac.digest(secret, message, "sha256")[:DIGEST_BYTES] for message in messages]
    return np.frombuffer(b"".join(made), np.uint8).reshape(len(made), DIGEST_BYTES)


def secret_check(secret: bytes, run: str) -> str:
    """Return a value that shows the coordinator whether the sites' secrets are the same."""
    return hmac.digest(secret, run.encode(), "sha256").hex()


def signed_content(run: str, site: str, digest: bytes) -> bytes:
    """Return the statement that a site signs: one of its clients holds the word of this digest in this run."""
    return b"\0".join((b"tff-re: a client holds the word", run.encode(), site.encode(), digest))


# A site's half


class WordsOfSite:
    """What a site answers about the words of a run."""

    def __init__(self, site: Site, run: str, counts: WordCounts, min_clients: int):
        """Prepare the answers.

        Args:
          site: its file.
          run: the run's id.
          counts: the words of its clients.
          min_clients: the recipe's, see `Decisions.words`.

        Raises:
          UserError: a file of the site's own is missing or malformed.
        """
        self._site, self._run, self._counts, self._min_clients = site, run, counts, min_clients
        self._secret = site.secret()
        if self._secret is None:
            return
        self._others = site.others()
        self._key = site.signing_key()

    def counted(self) -> protocol.WordsAnswer:
        """Return the answer to `words`: counts by signed digest, or of words that enough clients of this site hold."""
        counts, name = self._counts, self._site.options.name
        if self._secret is None:
            enough = counts.holders >= self._min_clients
            words = tuple(word for word, is_shown in zip(counts.words, enough, strict=True) if is_shown)
            self._say(len(words))
            return protocol.WordsAnswer(
                site=name, words=words, counts=counts.counts[enough], holders=counts.holders[enough]
            )
        rows = counts.digests(self._secret, self._run)
        order = np.lexsort(rows.T)
        rows = rows[order]
        signed = (self._key.sign(signed_content(self._run, name, row.tobytes())) for row in rows)
        return protocol.WordsAnswer(
            site=name,
            check=secret_check(self._secret, self._run),
            key=public_text(self._key),
            others=dict(self._site.options.sites),
            digests=rows,
            counts=counts.counts[order],
            holders=counts.holders[order],
            signatures=np.frombuffer(b"".join(signed), np.uint8).reshape(len(rows), SIGNATURE_BYTES),
        )

    def revealed(self, question: protocol.Reveal) -> list[str]:
        """Return the answer to `reveal`: the words of digests that come with evidence of enough clients.

        Raises:
          Refused: a digest is not of a word here, a signature does not hold, or fewer clients hold a word than
            `min_clients`; then no word is shown.
        """
        if self._secret is None:
            raise Refused("words are shown only with the sites' secret")
        wanted, names = question.digests, question.signers
        evidence = (question.rows.tolist(), question.by.tolist(), question.signatures)
        signed_by: dict[int, set[str]] = collections.defaultdict(set)
        for row, signer, signature in zip(*evidence, strict=True):
            self._require_signed(names[signer], wanted[row].tobytes(), signature.tobytes())
            signed_by[row].add(names[signer])
        index_of = {row.tobytes(): index for index, row in enumerate(self._counts.digests(self._secret, self._run))}
        words = []
        for number, digest in enumerate(wanted):
            index = index_of.get(digest.tobytes())
            if index is None:
                raise Refused("it was asked for a word that it does not hold")
            held = int(self._counts.holders[index]) + len(signed_by[number])
            if held < self._min_clients:
                raise Refused(
                    f"it was asked for a word that {held} clients hold by what other sites signed, and task.min_clients"
                    f" is {self._min_clients}"
                )
            words.append(self._counts.words[index])
        self._say(len(words))
        return words

    def _require_signed(self, name: str, digest: bytes, signature: bytes) -> None:
        """Raise Refused unless this other site signed that one of its clients holds the word in this run."""
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
        WORDS_SENT.log(_log, run=self._run[:8], count=number, total=len(self._counts.words))


def _plain(name: str) -> str:
    return "".join(letter for letter in name if letter.isprintable())[:63]


# The coordinator's half


def agree_on_words(ask: Ask, run: str, sites: Sequence[str], kind: str, options) -> tuple[str, ...] | None:
    """Return the vocabulary that `Vocabulary.build` would make of all texts, except for words that no site reveals.

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
    answers = ask(dict.fromkeys(sites, protocol.Words(run=run)))
    without = [site for site, answer in answers.items() if answer.counts is None]
    if len(without) == len(answers):
        return None
    if without:
        raise UserError(f"site {without[0]} counts no words, and others do; use the same recipe and version everywhere")
    other = [site for site, answer in answers.items() if (answer.words is not None) != (kind == LOCAL)]
    if other:
        raise UserError(f"site {other[0]} counts words in another way than it said; begin the run again")
    if kind == LOCAL:
        totals = _of_local(answers, options)
    else:
        totals = _of_keyed(ask, run, {site: _List(answers[site]) for site in sites}, options)
    if not totals:
        raise UserError("no word is left for the vocabulary; lower task.min_count or task.min_clients")
    words = sorted(totals, key=lambda word: (-totals[word], word))
    return tuple(words if options.max_words is None else words[: options.max_words - FIRST_WORD_ID])


def require_one_secret(checks: Mapping[str, str]) -> None:
    """Raise UserError if the sites' `secret_check`s differ."""
    if len(set(checks.values())) > 1:
        raise UserError("the sites' secrets for the vocabulary differ; give all of them the same file")


class _List:
    """A site's signed list of words: its answer, and the index of each digest."""

    def __init__(self, answer: protocol.WordsAnswer):
        self.answer, self.holders = answer, answer.holders
        self.index_of = {row.tobytes(): index for index, row in enumerate(answer.digests)}


def _of_keyed(ask: Ask, run: str, lists: dict[str, _List], options) -> dict[str, int]:
    """Return each word's occurrences at all sites."""
    require_one_secret({site: listed.answer.check for site, listed in lists.items()})
    _require_known_keys(lists)
    keys = (
        (digest, int(listed.answer.counts[index]), int(listed.holders[index]))
        for listed in lists.values()
        for digest, index in listed.index_of.items()
    )
    total = passing(keys, min_count=options.min_count, min_clients=options.min_clients)
    asked = {site: _request(run, site, lists, total, options.min_clients) for site in lists}
    wanted = {site: [row.tobytes() for row in request.digests] for site, request in asked.items()}
    wanted = {site: rows for site, rows in wanted.items() if rows}
    answers = ask({site: asked[site] for site in wanted})
    word_of: dict[bytes, str] = {}
    for site, rows in wanted.items():
        words = _words_of(site, answers[site].words, len(rows))
        for digest, word in zip(rows, words, strict=True):
            if word_of.setdefault(digest, word) != word:
                raise UserError(f"site {site} shows another word than the site before it for the same digest")
    if len(set(word_of.values())) < len(word_of):
        raise UserError("the sites show one word for two digests; one of them does not follow the protocol")
    left = len(total) - len(word_of)
    VOCABULARY_MADE.log(_log, run=run[:8], count=len(word_of), left=left)
    return {word: total[digest] for digest, word in word_of.items()}


def _request(run: str, site: str, lists: dict[str, _List], total: Mapping, min_clients: int) -> protocol.Reveal:
    """Return the request to a site, with the words that it may reveal and evidence of enough other sites."""
    listed, names = lists[site], list(lists)
    wanted, rows, signers, signatures = [], [], [], []
    for digest, index in listed.index_of.items():
        needed = max(0, min_clients - int(listed.holders[index]))
        others = [n for n, name in enumerate(names) if name != site and digest in lists[name].index_of][:needed]
        if digest not in total or len(others) < needed:
            continue
        for number in others:
            other = lists[names[number]]
            rows.append(len(wanted))
            signers.append(number)
            signatures.append(other.answer.signatures[other.index_of[digest]].tobytes())
        wanted.append(digest)
    return protocol.Reveal(
        run=run,
        signers=tuple(names),
        digests=np.frombuffer(b"".join(wanted), np.uint8).reshape(len(wanted), DIGEST_BYTES),
        rows=np.array(rows, np.int32),
        by=np.array(signers, np.int32),
        signatures=np.frombuffer(b"".join(signatures), np.uint8).reshape(len(signatures), SIGNATURE_BYTES),
    )


def _require_known_keys(lists: dict[str, _List]) -> None:
    """Raise UserError if a site lacks another site's key, because it could not check that site's signatures."""
    for site, listed in lists.items():
        for name, other in lists.items():
            known = listed.answer.others.get(name, other.answer.key if name == site else None)
            if known != other.answer.key:
                what = "no key" if known is None else "another key"
                raise UserError(
                    f"site {site}: its site.toml lists {what} of the site {name} in [sites]; its operator gets the key "
                    f"that `site SITE.TOML --key` prints from {name}'s operator"
                )


def _of_local(answers: Mapping[str, protocol.WordsAnswer], options) -> dict[str, int]:
    """Return each word's occurrences at the sites at which enough clients hold it."""
    counts = []
    for site, answer in answers.items():
        words = _words_of(site, answer.words, len(answer.counts))
        counts.extend(zip(words, answer.counts.tolist(), answer.holders.tolist(), strict=True))
    return passing(counts, min_count=options.min_count, min_clients=options.min_clients)


def _words_of(site: str, words: Sequence[str], count: int) -> Sequence[str]:
    """Return a site's words if their number is right.

    Raises UserError otherwise.
    """
    if len(words) != count or set(RESERVED) & set(words):
        raise UserError(f"site {site}: what it shows are not {count} words; use the same version of tff-re everywhere")
    return words


def passing(counts: Iterable[tuple], *, min_count: int, min_clients: int) -> dict:
    """Return the occurrences over all sites of those keys that occur and are held often enough.

    Args:
      counts: (key, occurrences, holders) of every site and word.
      min_count, min_clients: see `Vocabulary.build`.
    """
    total, holders = collections.Counter(), collections.Counter()
    for key, count, held in counts:
        total[key] += count
        holders[key] += held
    return {key: count for key, count in total.items() if count >= min_count and holders[key] >= min_clients}

"""A site's file, site.toml.

It says where the site's data are, who its clients are, and what a coordinator may ask.

What is refused by it is decided in `decisions.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Literal

import attrs
from attrs.validators import and_, ge, gt, lt, matches_re, optional
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from tff_re.errors import UserError
from tff_re.recipes.reading import Recipe, apply_override, load, read_toml, resolve, tomllib
from tff_re.recipes.structuring import structure
from tff_re.sites.keys import (
    MASK_PREFIX,
    PREFIX,
    is_public_key,
    mask_key,
    public_key,
    public_mask_key,
    public_text,
    read_key,
    read_private,
)
from tff_re.sites.survey_options import LEAST_COUNT, SurveyOptions
from tff_re.tasks import TASKS
from tff_re.tasks.task import Task

_READ_EVERYWHERE = (
    *("task.tokenizer", "task.mesh_tree", "task.rel2id", "task.knowledge_base"),
    *("model.encoder", "client_model.encoder"),
)
"""Of the keys below those of files that a site has to have where the recipe names one."""

_COORDINATORS = ("task.vectors_path", "task.vectors_corpus", "task.test_knowledge_base")
"""Of the keys below those of files that no site reads: the coordinator makes initial weights and tests of them."""

FILE_KEYS = (
    *("task.path", "task.dev_path", "task.test_path", "task.symptoms", *_READ_EVERYWHERE, *_COORDINATORS),
    *("model.adapter.path", "client_model.adapter.path"),
)
"""Keys of a recipe that name files. A coordinator names none at a site: the site's file does."""

LOCAL_KEYS = ("task.dataset", "task.split", "task.test_split", *FILE_KEYS)
"""Keys of a recipe that each party sets for itself; recipes that differ in them alone have the same digest."""

_OF_SITE, _OF_COORDINATOR = "of the site", "of the coordinator"
"""What stands in a recipe for sites in place of a file's name."""

_COORDINATORS_TABLE = "track"
"""Of a recipe; no site gets it, and no digest depends on it."""

_LEFT_OUT = ("name", "description", "published", "seed", "partition", "data", _COORDINATORS_TABLE)

DIGEST = re.compile("[0-9a-f]{64}")


@attrs.frozen(kw_only=True)
class DataOptions:
    """Attributes:
    dataset: the reader: a data set that `datasets` lists.
    path: the site's file for training; not set: that of the catalogue.
    test_path: the site's file for testing, where the recipe has test = 'official'.
    split, test_split: which of the data set's splits these are.
    folder: the data folder [default: $TFF_RE_DATA].
    """

    dataset: str
    path: str | None = None
    test_path: str | None = None
    split: str = "train"
    test_split: str = "dev"
    folder: str | None = None


@attrs.frozen(kw_only=True)
class ClientsOptions:
    """Attributes:
    rule: `one`: the site is one client; `documents`: each document (a dialogue, a patient) is one; `by_field`: all
      samples with one value of `field` are one; `share`: the recipe's own partition of the data set, of which this
      site takes a part, for machines of one owner.
    field: with `by_field`, e.g. diagnosis.
    share: with `share`, which part of the clients: "2/4" is the second of four parts, in the partition's order.
    names: whether the coordinator is told these values (of documents: their ids); else clients are numbered.
    least_examples: clients with fewer training examples take no part.
    """

    rule: Literal["one", "documents", "by_field", "share"] = "one"
    field: str | None = None
    share: str | None = None
    names: bool = False
    least_examples: int = attrs.field(default=1, validator=ge(1))

    def __attrs_post_init__(self):
        if (self.rule == "by_field") != (self.field is not None):
            raise ValueError("rule = 'by_field' needs field, and no other rule has one")
        if (self.rule == "share") != (self.share is not None):
            raise ValueError("rule = 'share' needs share, such as '2/4', and no other rule has one")
        if self.share is not None and not 1 <= self.part[0] <= self.part[1]:
            raise ValueError(f"share must be NUMBER/PARTS, such as '2/4' for the second of four, and is {self.share!r}")
        if self.rule == "share" and self.least_examples > 1:
            raise ValueError("rule = 'share' takes the recipe's clients as they are; leave least_examples out")

    @property
    def part(self) -> tuple[int, int]:
        """Return the part's number (from 1) and the number of parts of `share`, or (0, 0) if it is malformed."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", self.share)
        return (int(match[1]), int(match[2])) if match else (0, 0)


@attrs.frozen(kw_only=True)
class AllowOptions:
    """Attributes:
    recipes: digests of recipes (`site --digest RECIPE` prints one), or files of recipes on this machine; nothing else
      is computed. ["any"]: every recipe that this version of the project can read.
    privacy: what [privacy] a recipe must have: `none` is needed; `client`: any; `shares`: noise that the sites add, in
      shares (`privacy.least_sites`) or as `example`; `example`: noise in the client's own steps, which this site adds
      itself, from randomness of its own.
    runs: so many runs are begun on one file of training data (see the site's ledger); not set: any number.
    epsilon_total: the ε that all runs on one file of training data may spend together, as the ledger counts it. It
      needs privacy = "example" or "shares"; runs of both kinds on one file are refused with it.
    delta_total: the δ of that ε; not set: the smallest privacy.delta of the recipes of these runs (1e-5 in a recipe
      that does not say).
    most_rounds: so many rounds of one run are answered.
    most_bytes_up: so many bytes of sums leave for one run.
    least_clients: a sum of a training stage is over at least so many of the site's clients.
    least_sites: sums leave this site masked only ([aggregation] secure = "masks"), and it opens totals over at least so
      many sites; not set: recipes without masks are answered, too, and totals are opened over at least 2.
    evaluation: `sums`: counts and losses of an evaluation enter the total over the sites only; `own`: the coordinator's
      files also have a row of this site; `none`: this site takes no part in evaluations.
    comparison: what the coordinator is told if the recipe has [baseline] or [personalise]: `interval`: the accuracy or
      F1 of both models on this site's test examples, their difference with its interval, and the verdict;
      `direction`: the verdict only (gain, loss, open); `nothing`. With masked sums at most the direction is told, with
      [privacy] nothing.
    survey: what a survey may tell (`SurveyOptions`); false: none is answered. Not set: {least_count = 5}; with
      least_sites only masked and without digests of words, and none with privacy = "example": nothing leaves this site
      without noise or a mask.
    """

    recipes: tuple[str, ...]
    privacy: Literal["none", "client", "shares", "example"] = "none"
    runs: int | None = attrs.field(default=None, validator=optional(ge(1)))
    epsilon_total: float | None = attrs.field(default=None, validator=optional(gt(0)))
    delta_total: float | None = attrs.field(default=None, validator=optional(and_(gt(0), lt(1))))
    most_rounds: int = attrs.field(default=1000, validator=ge(1))
    most_bytes_up: int = attrs.field(default=10**12, validator=ge(1))
    least_clients: int = attrs.field(default=1, validator=ge(1))
    least_sites: int | None = attrs.field(default=None, validator=optional(ge(2)))
    evaluation: Literal["sums", "own", "none"] = "sums"
    comparison: Literal["interval", "direction", "nothing"] = "nothing"
    survey: bool | SurveyOptions | None = None

    def __attrs_post_init__(self):
        if self.epsilon_total is not None and self.privacy not in ("example", "shares"):
            raise ValueError(
                "allow.epsilon_total needs allow.privacy = 'example' or 'shares': no other noise is added by sites"
            )

    def survey_options(self, *, masked: bool) -> SurveyOptions | None:
        """Return what a survey may tell whose counts leave masked or not, or None if none is answered."""
        if isinstance(self.survey, SurveyOptions):
            return self.survey
        closed, allowed = self.survey is None and self.least_sites is not None, self.survey
        if self.survey is None:
            allowed = self.privacy != "example" and (masked or not closed)
        return SurveyOptions(least_count=LEAST_COUNT, vocabulary=not closed) if allowed else None


@attrs.frozen(kw_only=True)
class VocabularyOptions:
    """Attributes:
    secret: a file of at least 16 random bytes that the sites share and the coordinator does not have. With it, words
      are counted over all sites by keyed digests, and one is sent if `task.min_clients` clients hold it, of which
      another site that has signed for it counts as one. Without it, only words that `task.min_clients` clients of this
      site hold are counted and sent.
    least_clients: the least task.min_clients of a recipe; with 1, every word of the site may leave.
    """

    secret: str | None = None
    least_clients: int = attrs.field(default=2, validator=ge(1))


@attrs.frozen(kw_only=True)
class SiteOptions:
    """Attributes:
    name: the site's, as coordinators call it.
    socket: the Unix socket that it answers on; its folder has to be open to this user alone.
    state: folder for what clients keep between rounds, and the log.
    data, clients, allow, vocabulary: see their classes.
    sites: the other sites' names and public keys, as their operators say them. This site's own may be among them.
    mask_keys: the other sites' names and public keys of masked sums, as `site SITE.TOML --mask-key` prints them.
    key: the file of the key that this site signs with; `site SITE.TOML --key` makes it.
    set: further keys of recipes, such as "task.tokenizer", to this site's values.
    threads: clients that are computed side by side.
    keep_updates: of this number of the newest rounds of a run, the sums of updates that left are kept in `state`, for
      `audit SITE.TOML`; 0: of none.
    """

    name: str = attrs.field(validator=matches_re(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"))
    data: DataOptions
    allow: AllowOptions
    clients: ClientsOptions = ClientsOptions()
    vocabulary: VocabularyOptions = VocabularyOptions()
    sites: dict[str, str] = attrs.field(factory=dict)
    mask_keys: dict[str, str] = attrs.field(factory=dict)
    set: dict[str, str] = attrs.field(factory=dict)
    key: str = "site.key"
    socket: str = "site.sock"
    state: str = "state"
    threads: int = attrs.field(default=1, validator=ge(1))
    keep_updates: int = attrs.field(default=0, validator=ge(0))

    def __attrs_post_init__(self):
        possible = [key for key in LOCAL_KEYS if key not in _COORDINATORS]
        for key in self.set:
            if key not in possible:
                raise ValueError(f"set: {key} is not a site's to choose; these are: {', '.join(possible)}")
        for name, key in self.sites.items():
            if not is_public_key(key):
                raise ValueError(f"sites has no public key of {name} as `site SITE.TOML --key` prints it ({PREFIX}…)")
        for name, key in self.mask_keys.items():
            if not is_public_key(key, MASK_PREFIX):
                raise ValueError(
                    f"mask_keys has no public key of {name} as `site SITE.TOML --mask-key` prints it ({MASK_PREFIX}…)"
                )
        for table, keys in (("sites", self.sites), ("mask_keys", self.mask_keys)):
            if len(set(keys.values())) < len(keys):
                raise ValueError(f"{table} has one key under two names; each site makes a key of its own")


@attrs.frozen
class Site:
    """A site's file in parsed form.

    Its paths are relative to its folder.
    """

    options: SiteOptions
    folder: Path
    digests: frozenset[str] | None
    """Of the recipes that are accepted; None: all."""

    def path(self, name: str) -> Path:
        """Return a path of the file."""
        return self.folder / name

    @property
    def socket(self) -> Path:
        """Return the socket on which the site answers."""
        return self.path(self.options.socket)

    @property
    def state(self) -> Path:
        """Return the folder of what is stored between rounds."""
        return self.path(self.options.state)

    def secret(self) -> bytes | None:
        """Return the sites' shared secret.

        Raises UserError if its file is missing or too short.
        """
        if self.options.vocabulary.secret is None:
            return None
        path = self.path(self.options.vocabulary.secret)
        secret = read_private(path, "write 32 of /dev/urandom at one site, and give all sites the file")
        if len(secret) < 16:
            raise UserError(f"{path}: holds {len(secret)} bytes, and a secret needs 16; write 32 of /dev/urandom")
        return secret

    def signing_key(self) -> Ed25519PrivateKey:
        """Return the site's signing key.

        Raises UserError if it is missing, malformed or readable by others.
        """
        return read_key(self.path(self.options.key))

    def others(self) -> dict[str, Ed25519PublicKey]:
        """Return the public keys of the other sites, by name.

        Raises:
          UserError: this site's own key is there under another name, or another one under its own.
        """
        others = self._others("sites", self.options.sites, public_text(self.signing_key()))
        return {listed: public_key(key) for listed, key in others.items()}

    def mask_keys(self) -> dict[str, X25519PublicKey]:
        """Return the other sites' public keys of masked sums, by name.

        Raises UserError like `others`.
        """
        here = public_text(mask_key(self.signing_key()))
        others = self._others("mask_keys", self.options.mask_keys, here)
        return {listed: public_mask_key(key) for listed, key in others.items()}

    def _others(self, table: str, keys: dict[str, str], key_here: str) -> dict[str, str]:
        name = self.options.name
        for listed, key in keys.items():
            if listed == name and key != key_here:
                raise UserError(
                    f"site {name}: [{table}] has another key of this site than its own, which is {key_here}"
                )
            if listed != name and key == key_here:
                raise UserError(f"site {name}: [{table}] has this site's own key as that of {listed}; get {listed}'s")
        return {listed: key for listed, key in keys.items() if listed != name}

    def local_recipe(self, table: dict) -> Recipe:
        """Return a coordinator's recipe (from `recipe_table`) with this site's files.

        This changes the table.

        Raises:
          UserError: it is malformed, or names a file that this site has not set.
        """
        data, options = self.options.data, dict(self.options.set)
        task = table.setdefault("task", {})
        if self.options.clients.rule == "share" and task.get("server_share"):
            raise UserError("task.server_share: shares have all samples of the data set as clients; set it to 0")
        task |= {"dataset": data.dataset, "split": data.split}
        options = {f"task.{key}": str(self.path(name)) for key, name in self._files(task).items()} | options
        unread = {key for key in _COORDINATORS if _get(table, key) == _OF_COORDINATOR}
        named = [k for k in FILE_KEYS if _get(table, k) is not None and k not in options and k not in unread]
        if named:
            raise UserError(f"the recipe names a file by {named[0]}; its operator sets it in [set] of the site's file")
        for key, value in options.items():
            path = self.path(value)
            apply_override(table, f"{key}={json.dumps(str(path) if path.exists() else value)}")
        return resolve(table, f"the recipe at {self.options.name}")

    def _files(self, task: dict) -> dict[str, str]:
        data, name = self.options.data, task.get("name")
        test_key = (TASKS[name] if type(name) is str and name in TASKS else Task).test_file
        official = task.get("test") == "official"
        if official:
            task["test_split"] = data.test_split
            if data.path is not None and data.test_path is None:
                raise UserError(
                    "the recipe is tested on a file of its own, and the site's file names no data.test_path"
                )
        files = {"path": data.path, test_key: data.test_path if official else None}
        return {key: name for key, name in files.items() if name is not None}


def read_site(path: Path) -> Site:
    """Read a site's file.

    Raises UserError with file and key if it is malformed.
    """
    table = read_toml(path)
    options = structure(SiteOptions, table, section="", source=str(path))
    digests: set[str] | None = set()
    for name in options.allow.recipes:
        if name == "any":
            digests = None
            break
        digests.add(name if DIGEST.fullmatch(name) else recipe_digest(load(str(path.parent / name))))
    return Site(options, path.parent.resolve(), None if digests is None else frozenset(digests))


def recipe_digest(recipe: Recipe) -> str:
    """Return the SHA-256 of what a resolved recipe computes.

    It ignores the recipe's name, seed and partition, and the sites' own keys.
    """
    return table_digest(tomllib.loads(recipe.to_toml()))


def table_digest(table: dict) -> str:
    """Return the `recipe_digest` of the table of a resolved recipe."""
    table = json.loads(json.dumps({key: value for key, value in table.items() if key not in _LEFT_OUT}))
    for key in LOCAL_KEYS:
        inner, last = _inner(table, key)
        inner.pop(last, None)
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def recipe_table(text: str) -> dict:
    """Read a coordinator's recipe.

    Raises UserError if it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        raise UserError("the recipe is not valid TOML") from None


def for_sites(recipe: Recipe) -> str:
    """Return the recipe's file as sites get it, without the coordinator's files and trackers."""
    import tomli_w

    table = tomllib.loads(recipe.to_toml())
    table.pop(_COORDINATORS_TABLE, None)
    for key in FILE_KEYS:
        inner, last = _inner(table, key)
        if inner.pop(last, None) is not None and key in (*_READ_EVERYWHERE, *_COORDINATORS):
            inner[last] = _OF_SITE if key in _READ_EVERYWHERE else _OF_COORDINATOR
    return tomli_w.dumps(table)


def _inner(table: dict, key: str) -> tuple[dict, str]:
    """Return the table that contains a dotted key, and the key in it.

    The table is empty if there is none.
    """
    *sections, last = key.split(".")
    for section in sections:
        table = table.get(section, {})
    return table, last


def _get(table: dict, key: str):
    for part in key.split("."):
        table = table.get(part) if isinstance(table, dict) else None
    return table

"""Three sites with files of their own, in this process, and the same clients in a simulation."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import attrs
import tomli_w
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from datasets.dialogues.loading import load_corpus
from datasets.partition import Partition, write_partition
from tests.upper_floors import consultations, text_recipe
from tff_re.recipes.reading import Recipe, resolve, tomllib
from tff_re.runs.run import train_run
from tff_re.sites.agreement import Agreement, Client
from tff_re.sites.data import SiteData
from tff_re.sites.decisions import Decisions
from tff_re.sites.keys import mask_key, public_text
from tff_re.sites.messages import unpack
from tff_re.sites.policy import AllowOptions, DataOptions, Site, SiteOptions, for_sites, read_site, recipe_table
from tff_re.sites.run import train_at_sites
from tff_re.sites.site import SiteService
from tff_re.sites.transport import InMemory
from tff_re.tasks.data_paths import DataPaths

NAMES = ("aachen", "bonn", "celle")
SHARED_SECRET = b"the secret of all three sites"


def recipe_of(algorithm="fedavgs", *overrides, **task) -> Recipe:
    """Characters, logistic regression; the data are the sites'."""
    table = text_recipe("/only/at/the/sites", **{"min_clients": 2, **task})
    del table["task"]["path"]
    table["task"]["dataset"] = "shipped"
    table["algorithm"]["name"] = algorithm
    table["training"] = {"rounds": 2, "clients_per_round": 3, "checkpoint_every": 2}
    return resolve(table, "tiny-text.toml", overrides)


def corpora(dialogues=4) -> dict[str, dict]:
    """Site -> its dialogues, with different ids; some words occur only at one site."""
    site_corpora = {}
    for number, name in enumerate(NAMES):
        dialogues_here = consultations(dialogues + number)
        for index, dialogue in enumerate(dialogues_here.values()):
            for sentence in dialogue["dialogue"]:
                sentence["sentence"] += "甲乙丙"[number] * (1 + index % 2)
        site_corpora[name] = {f"{name}-{key}": value for key, value in dialogues_here.items()}
    return site_corpora


def key_of(name: str) -> Ed25519PrivateKey:
    """A site's signing key, the same in each test."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def write_private(path: Path, content: bytes) -> None:
    """A file that only this user may read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


def write_site(folder: Path, name: str, corpus: dict, **tables) -> Path:
    """Writes a site's folder: site.toml, data, key and the shared secret; `tables` replace or extend the site's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "texts.json").write_text(json.dumps(corpus, ensure_ascii=False), "utf-8")
    write_private(folder / "vocabulary.key", SHARED_SECRET)
    write_private(folder / "site.key", key_of(name).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    table = {
        "name": name,
        "data": {"dataset": "shipped", "path": "texts.json"},
        "clients": {"rule": "one"},
        "allow": {"recipes": ["any"]},
        "vocabulary": {"secret": "vocabulary.key"},
        "sites": {other: public_text(key_of(other)) for other in NAMES},
        "mask_keys": {other: public_text(mask_key(key_of(other))) for other in NAMES},
    }
    for key, value in copy.deepcopy(tables).items():
        table[key] = {**table[key], **value} if isinstance(table.get(key), dict) else value
    (folder / "site.toml").write_text(tomli_w.dumps(table), "utf-8")
    return folder / "site.toml"


def write_sites(folder: Path, site_corpora=None, **tables) -> dict[str, Path]:
    """Name -> file of each site."""
    return {
        name: write_site(folder / name, name, corpus, **tables) for name, corpus in (site_corpora or corpora()).items()
    }


def agreement_of(run: str, clients: tuple[Client, ...]) -> Agreement:
    """An agreement with two classes and no vocabulary."""
    unset = {field.name: None for field in attrs.fields(Agreement)}
    values = {"run": run, "clients": clients, "label_names": ("a", "b"), "encoding": "", "facts": "", "server": 0}
    values["evaluation"] = {}
    return Agreement(**{**unset, **values})


def decisions_of(folder: Path = Path(), **allow) -> Decisions:
    """The decisions of a site with these options in [allow]; `folder` has its state."""
    data, allow = DataOptions(dataset="shipped"), AllowOptions(recipes=("any",), **allow)
    return Decisions(Site(SiteOptions(name="celle", data=data, allow=allow, state="."), folder, None))


class Federation:
    """Sites in this process, reached by `engine`; `sent` records (site, message, answer)."""

    def __init__(self, files: dict[str, Path]):
        self.files, self.sent = files, []
        self.services = {name: SiteService(read_site(path)) for name, path in files.items()}
        self.engine = InMemory({name: self._recorded(name) for name in files})

    def restart(self, name: str) -> None:
        """As if the site's process had been killed and started again."""
        self.services[name].close()
        self.services[name] = SiteService(read_site(self.files[name]))

    def _recorded(self, name):
        def call(message):
            answer = self.services[name].answer(message)
            self.sent.append((name, message, answer))
            return answer

        return call

    def close(self):
        for service in self.services.values():
            service.close()


def simulation_inputs(
    folder: Path, recipe: Recipe, files: dict[str, Path], corpus_path: Path | None = None
) -> tuple[Recipe, Path]:
    """(the recipe on one file with the data of all sites, a partition file with the sites' clients).

    `corpus_path`: that file, if it exists already.
    """
    corpus, clients, server = {}, {}, ()
    if getattr(recipe.task.options, "server_share", 0.0):
        server_path = Path(recipe.task.options.path)
        corpus = json.loads(server_path.read_text("utf-8"))
        server = tuple(s.sample_id for s in load_corpus(recipe.task.options.dataset, path=server_path).samples)
    for path in files.values():
        site = read_site(path)
        if corpus_path is None:
            corpus |= json.loads((path.parent / "texts.json").read_text("utf-8"))
        data = SiteData(site, site.local_recipe(recipe_table(for_sites(recipe))))
        clients |= data.clients
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "all.json").write_text(json.dumps(corpus, ensure_ascii=False), "utf-8")
    write_partition(Partition("site", {}, recipe.seed, clients, server=server), folder / "partition.json")
    table = tomllib.loads(recipe.to_toml())
    table["task"]["path"] = str(corpus_path or folder / "all.json")
    return resolve(table, "simulated.toml"), folder / "partition.json"


def trained(folder, recipe, files=None, corpus_path=None, simulated_recipe=None, **tables):
    """Trains the recipe across sites, and it or another one in a simulation on the same clients."""
    files = files or write_sites(folder / "sites", **tables)
    federation = Federation(files)
    experiment, result = train_at_sites(recipe, folder / "run", federation.engine, details=False)
    federation.close()
    simulated, partition = simulation_inputs(folder / "one place", simulated_recipe or recipe, files, corpus_path)
    options = {"data_paths": DataPaths(partition=partition), "runtime": "in-process", "details": False}
    simulation = train_run(simulated, folder / "simulated", **options)
    return SimpleNamespace(
        **{"folder": folder, "experiment": experiment, "result": result, "sent": federation.sent},
        **{"simulation": simulation[0], "simulated": simulation[1]},
    )


def payload(arrays) -> int:
    """Bytes of arrays."""
    return sum(array.nbytes for array in arrays)


def stages(run, purpose="train"):
    """(site, table and arrays of the request, (table, arrays) of the answer) of each stage."""
    for site, message, answer in run.sent:
        table, arrays = unpack(message)
        if table["kind"] == "stage" and table["purpose"] == purpose:
            yield site, table, arrays, unpack(answer)

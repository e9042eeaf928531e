"""The events of all logs, in the order in which a line of text is compared with them.

docs/runs.md lists them. A name keeps its meaning, and a field its kind; new ones may be added.
"""

from __future__ import annotations

import logging
import string

from tff_re.runtime.logs import FILE, NAME, NUMBER, SITES, TEXT, WHOLE, Event, Field

FIELDS = {
    "after": Field(NUMBER, "accuracy or F1 of the federated model, or of the fine-tuned one"),
    "answered": Field(WHOLE, "sites that answered"),
    "asked": Field(WHOLE, "sites that were asked"),
    "before": Field(NUMBER, "accuracy or F1 of the site's own model, or of the federated one before fine-tuning"),
    "bytes_down": Field(WHOLE, "bytes of arrays to the clients or sites"),
    "bytes_up": Field(WHOLE, "bytes of arrays from the clients or sites"),
    "clients": Field(WHOLE, "number of clients"),
    "comparison": Field(TEXT, "what a site tells of its comparison, in words"),
    "count": Field(WHOLE, "how many facts or words are sent"),
    "data": Field(NAME, "the first eight characters of the data's digest"),
    "detail": Field(TEXT, "why a message was not answered"),
    "disclosed": Field(NAME, "what the coordinator is told: `interval`, `direction` or `nothing`"),
    "error": Field(TEXT, "an error"),
    "file": Field(FILE, "the file's name; the text form has its path"),
    "high": Field(NUMBER, "upper end of the difference's interval"),
    "left": Field(WHOLE, "words that no site sent"),
    "line": Field(TEXT, "a line for the operator"),
    "low": Field(NUMBER, "lower end of the difference's interval"),
    "measure": Field(NAME, "what is measured, such as `accuracy`"),
    "milliseconds": Field(NUMBER, "how long the answer took"),
    "outcome": Field(NAME, "`answered`, `refused`, `lost`, `failed` or `malformed`; of a computation, why it failed"),
    "question": Field(TEXT, "the message in words"),
    "kind": Field(NAME, "kind of the message, such as `stage`"),
    "progress": Field(TEXT, "sites and how many rounds each has trained alone"),
    "protection": Field(TEXT, "a least count, or ε"),
    "purpose": Field(NAME, "`train` or `evaluate`"),
    "quorum": Field(NUMBER, "fraction of a round's clients that is enough"),
    "reason": Field(TEXT, "why, in words"),
    "recipe": Field(NAME, "the first eight characters of the recipe's digest"),
    "round": Field(WHOLE, "number of the round, from 1"),
    "rounds": Field(WHOLE, "number of rounds of the recipe"),
    "run": Field(NAME, "the first eight characters of the run's id"),
    "seconds": Field(NUMBER, "how long the training of the round or the stage took, or how long a site may still take"),
    "service": Field(NAME, "`mlflow` or `wandb`"),
    "site": Field(NAME, "name of the site"),
    "sites": Field(SITES, "names of sites"),
    "split": Field(NAME, "`train`, `dev` or `test`"),
    "stage": Field(WHOLE, "number of the stage in the round or the evaluation, from 0"),
    "total": Field(WHOLE, "how many words the site has"),
    "verdict": Field(NAME, "`gain`, `loss` or `open`"),
    "what": Field(NAME, "`alone` or `tuned`: the model that was trained alone, or the fine-tuned one, is compared"),
}
"""Name -> kind and meaning. A field has one meaning in all events."""

EVENTS: dict[str, Event] = {}
"""Name -> event."""


def _event(name: str, text: str, meaning: str, level: int = logging.INFO, *, more: str = "") -> Event:
    """An event with the fields in its text, and `more` that only JSON lines have."""
    names = [*filter(None, (part[1] for part in string.Formatter().parse(text))), *more.split()]
    EVENTS[name] = event = Event(name, text, meaning, {name: FIELDS[name] for name in names}, level)
    return event


# A run
RUN_BEGUN = _event(
    "run.begun",
    "{rounds} rounds; a client gets {bytes_down} bytes and sends {bytes_up} a round",
    "Training begins or is resumed.",
)
RUN_RESUMED = _event("run.resumed", "resumed after round {round} of {rounds}", "A checkpoint was found.")
RUN_RESUMED_AT_START = _event(
    "run.resumed_at_start",
    "resumed; no round was finished, so training starts with round 1",
    "No checkpoint was found.",
)
RUN_NOTE = _event("run.note", "{line}", "A note on the recipe or its data.")
RUN_WARNING = _event("run.warning", "{reason}", "The recipe is unlikely to do what it says.", logging.WARNING)
RUN_STOPPED = _event("run.stopped", "{reason}", "Training stopped before its last round.", more="round")
RUN_INTERRUPTED = _event(
    "run.interrupted",
    "interrupted after round {round}, which is saved; continue with --resume",
    "Ctrl-C, SIGTERM or an error ended the training.",
)
RUN_FINISHED = _event("run.finished", "finished after round {round} of {rounds}", "All results are written.")
ROUND_FINISHED = _event(
    "round.finished",
    "round {round} of {rounds}: {seconds:.2f} s",
    "The rows of a round are written.",
)
WORK_REPEATED = _event(
    "work.repeated",
    "{reason}; starting it again and repeating its work",
    "A worker or a site was lost, and the round or evaluation is repeated.",
    logging.WARNING,
)
CLIENT_FAILED = _event(
    "client.failed",
    "a client's computation failed ({outcome}); its result is not used: {error}",
    "`training.tolerated_failures` allows it.",
    logging.WARNING,
)
FILE_RESTORED = _event(
    "file.restored",
    "{file}: {reason}; restored from the checkpoint of round {round}",
    "A file of the folder was damaged or changed.",
    logging.WARNING,
)
FILE_DAMAGED = _event(
    "file.damaged",
    "{file}: was damaged; there is no checkpoint yet, so training starts with round 1",
    "A damaged file was removed.",
    logging.WARNING,
)
PRIVACY_NEW_RANDOMNESS = _event(
    "privacy.new_randomness",
    "{file}: continues with new randomness; ε counts every round that was started",
    "A private run was resumed.",
    logging.WARNING,
)
TRACKING_ENDED = _event(
    "tracking.ended",
    "track: {service} {reason}; this run is no longer tracked there",
    "A service of `[track]` failed.",
    logging.WARNING,
)
WORKER_EXPOSED = _event(
    "worker.exposed",
    "everybody on this machine and its network can reach the worker while it runs: this machine allows no network "
    "namespace ({reason}); --runtime in-process has no worker",
    "The worker of the runtime `local` has no network of its own.",
)

# The coordinator of a run across sites
SITES_AGREED = _event(
    "sites.agreed",
    "{sites}: {clients} clients; quorum {quorum:.4g}, {seconds:.6g} s for an answer",
    "All sites agreed to the run.",
)
STAGE_FINISHED = _event(
    "stage.finished",
    "{purpose} round {round} stage {stage}: {answered} of {asked} sites answered, {bytes_down} bytes down, {bytes_up} "
    "bytes up, {seconds:.2f} s",
    "The answers of a stage have come.",
)
SITES_WAITING = _event(
    "sites.waiting",
    "waiting for {sites}: no answer yet; {seconds:.0f} s left",
    "Sites that can be reached have not answered yet.",
    logging.WARNING,
)
SITE_FAILING = _event(
    "site.failing",
    "waiting for site {site}: {reason}; {seconds:.0f} s left",
    "A site cannot be reached and is asked again.",
    logging.WARNING,
)
SITE_BACK = _event("site.back", "site {site} answers again", "A lost site is back.", logging.WARNING)
SITES_LEFT_OUT = _event(
    "sites.left_out",
    "{reason}; round {round} goes on without",
    "A call leaves out sites that failed or are lost.",
    logging.WARNING,
    more="sites",
)
ROUND_REPEATED = _event(
    "round.repeated",
    "{reason}; round {round} is repeated with others",
    "Fewer than `training.min_clients` answered.",
    logging.WARNING,
)
EVALUATION_CHANGED = _event(
    "evaluation.changed",
    "{split} over {answered} of {asked} sites",
    "Another number of sites than before answered an evaluation.",
    logging.WARNING,
)
SITE_NOT_FINISHED = _event(
    "site.not_finished",
    "{reason}; what it kept of the run stays there",
    "A site did not answer at the end of the run.",
    logging.WARNING,
)
SITES_TRAIN_ALONE = _event(
    "sites.train_alone", "sites train alone; rounds so far: {progress}", "The sites' own training takes its time."
)
COMPARISON_MISSING = _event(
    "comparison.missing",
    "{reason}; its comparison is missing",
    "A site did not compare its own model with the federated one.",
    logging.WARNING,
    more="site",
)
SITE_COMPARED = _event(
    "site.compared",
    "site {site}: {comparison}",
    "What a site tells of its comparison.",
    more="what verdict",
)
VOCABULARY_MADE = _event(
    "vocabulary.made",
    "run {run}: {count} words are in the vocabulary, {left} were not shown by any site",
    "The sites' words were combined.",
)

# A site
SITE_BEGUN = _event("site.begun", "site {site} answers", "The site's process is ready.")
SITE_ENDED = _event("site.ended", "site {site} ends", "Ctrl-C or SIGTERM ended the site's process.")
SITE_LEDGER = _event("site.ledger", "ledger: {line}", "What runs on the site's data have received and spent.")
MESSAGE_ANSWERED = _event(
    "message.answered",
    "{question}: {bytes_down} bytes down, {bytes_up} bytes up, {milliseconds:.0f} ms, {outcome}{detail}",
    "A message was answered.",
    more="run kind purpose round stage clients",
)
MESSAGE_MALFORMED = _event("message.malformed", "a malformed message", "The error in it, for debugging.", logging.DEBUG)
MESSAGE_WITHOUT_BEGINNING = _event(
    "message.without_beginning",
    "a part of a message whose beginning is not there was not answered",
    "The other side sends the message again.",
    logging.WARNING,
)
PEER_REFUSED = _event(
    "peer.refused",
    "another user's process was not answered",
    "It connected to the site's socket.",
    logging.WARNING,
)
DATA_UNREADABLE = _event(
    "data.unreadable", "the data cannot be read: {error}", "The recipe is refused.", logging.WARNING
)
FACTS_SENT = _event("facts.sent", "run {run}: digests of {count} facts are shown", "Digests of facts leave the site.")
WORDS_SENT = _event("words.sent", "run {run}: {count} of {total} words are shown", "Words leave the site.")
SURVEY_ANSWERED = _event(
    "survey.answered",
    "survey of the data {data} by the recipe {recipe}: with {protection}",
    "Protected counts leave the site.",
)
MODELS_COMPARED = _event(
    "models.compared",
    "run {run}: {what}: {measure} {before:.4f}, then {after:.4f}; interval of the difference {low:.4f} to {high:.4f}, "
    "{verdict}; disclosed: {disclosed}",
    "The site compared its own model with the federated one. Only what `disclosed` says leaves the site.",
)

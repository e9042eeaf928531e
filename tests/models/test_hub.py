"""Encoders named by hub ids where the hub cannot be reached: one line at once, or the local copy."""

import http.server
import threading

import pytest
from transformers.utils import hub as transformers_hub

from tests.models.encoders_for_tests import copy_encoder
from tff_re.errors import UserError
from tff_re.models import hub, pretrained
from tff_re.tasks.document_relations import Options as DocumentOptions
from tff_re.tasks.document_relations import encoding_of
from tff_re.tasks.relation_text import load_tokenizer

NOWHERE = "http://127.0.0.1:9"  # the port "discard", at which nothing answers


@pytest.fixture
def unreachable(monkeypatch):
    """A hub that does not answer; what is asked of `transformers` beyond our own check fails the test."""
    monkeypatch.setattr(transformers_hub, "HUGGINGFACE_CO_RESOLVE_ENDPOINT", NOWHERE)
    hub.reachable.cache_clear()
    yield
    hub.reachable.cache_clear()


def test_an_unreachable_hub_is_one_line_before_transformers_asks(unreachable, monkeypatch):
    def asked(*_, **__):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", asked)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", asked)
    with pytest.raises(UserError) as of_tokenizer:
        load_tokenizer("nobody/no-such-encoder")
    with pytest.raises(UserError) as of_encoder:
        pretrained.load_config("nobody/no-such-encoder")
    start = "nobody/no-such-encoder: there is no such folder, and the Hugging Face hub cannot be reached; set task."
    assert str(of_tokenizer.value).startswith(f"tokenizer {start}")
    assert str(of_encoder.value).startswith(f"encoder {start}")
    assert "\n" not in str(of_tokenizer.value) + str(of_encoder.value)


def test_without_network_the_local_copy_is_read_and_folders_need_no_hub(unreachable, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_is_cached", lambda source: source == "an/encoder")
    assert hub.how_to_read("an/encoder", "encoder", "task.tokenizer") == {"local_files_only": True}
    assert hub.how_to_read(copy_encoder(tmp_path / "encoder").__fspath__(), "encoder", "task.tokenizer") == {}
    assert hub.how_to_read("/no/such/folder", "encoder", "task.tokenizer") == {}  # the caller says that it is not there


def test_any_answer_counts_as_reached():
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(403)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Refuses)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        assert hub.reachable(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_encoding_is_advised_only_where_the_key_exists():
    with pytest.raises(UserError) as of_documents:
        encoding_of(DocumentOptions(), ())
    assert "task.encoding" not in str(of_documents.value)
    with pytest.raises(UserError, match=r"or set task\.encoding = 'words'"):
        load_tokenizer(None)
    assert not hasattr(DocumentOptions(), "encoding")

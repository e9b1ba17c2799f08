"""The room that speaks to models, over real HTTP against a server that misbehaves."""

import asyncio
import time

import pytest

from runner.errors import UserError
from runner.limits import Limits, Stopped, Unreachable
from runner.llm import Client, Request
from runner.prices import Price
from tests.servers import scripted
from tests.servers.misbehaving import Server

KEY = "sk-test-0123456789abcdef"
QUICK = Limits(concurrency=4, n_tries=4, timeout_s=5)


def question(text="hello", room=400, seed=None):
    user = f"The code of this message is 0123456789ab.\n<<<0123456789ab note\n[0123456789ab 1] {text}\n0123456789ab>>>"
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return Request("Label it.", user, schema, "labels", room, seed, 0.0)


def ask(server, *requests, limits=QUICK, price=None):
    """Replies to some questions, with the client that asked them."""

    async def go():
        client = Client("tiny", limits, base_url=server.url, price=price)
        try:
            return await asyncio.gather(*(client.ask(r) for r in requests)), client
        finally:
            await client.close()

    return asyncio.run(go())


def once(trouble):
    return lambda body, n_before: trouble if n_before == 0 else None


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    "trouble, name",
    [
        ("429:0.05", "429"),
        ("429", "429"),
        ("500", "500"),
        ("502", "502"),
        ("503", "503"),
        ("reset", "connection"),
        ("html", "broken body"),
        ("no-choices", "broken body"),
    ],
)
def test_a_transient_failure_is_sent_again_and_named(trouble, name):
    with Server(once(trouble)) as server:
        (reply,), client = ask(server, question())
    assert scripted.pick("hello", scripted.CONTENT) in reply.text
    assert client.retries == {name: 1} and reply.usage.n_requests == 2 == len(server.bodies)


def test_retries_are_bounded_and_the_item_is_no_answer():
    with Server(lambda body, n: "503") as server:
        (reply,), _ = ask(server, question())
    assert reply.text is None and reply.failure.startswith("no answer: 4 sends, last 503") and len(server.bodies) == 4


def test_retry_after_is_waited_out_by_everybody():
    with Server(lambda body, n: "429:0.6" if n == 0 and "first" in str(body) else None) as server:
        asked = [question("first"), *(question(f"q{n}") for n in range(5))]
        ask(server, *asked)
    gaps = [t - server.times[0] for t in server.times[1:]]
    assert len(gaps) == 6 and min(gaps) >= 0.59


def test_a_wait_beyond_patience_is_no_answer_at_once():
    with Server(lambda body, n: "429:4000") as server:
        began = time.monotonic()
        (reply,), _ = ask(server, question())
    assert "asked to wait 4000 s" in reply.failure and time.monotonic() - began < 4 and len(server.bodies) == 1


def test_a_slow_answer_times_out_and_is_asked_again():
    with Server(once("slow:3")) as server:
        (reply,), client = ask(server, question(), limits=Limits(timeout_s=0.5, n_tries=3))
    assert reply.text and client.retries == {"timeout": 1}


def test_a_truncated_answer_is_asked_again_with_more_room_and_all_tokens_count():
    with Server(lambda body, n: "short-of-room") as server:
        (reply,), client = ask(server, question(room=600))
    assert [b["max_tokens"] for b in server.bodies] == [600, 1200, 2400] and reply.text
    n_in = sum(len(m["content"]) for m in server.bodies[0]["messages"]) // 4
    assert reply.usage.n_input_tokens == 3 * n_in == client.budget.n_input_tokens


def test_an_answer_that_never_ends_is_unscored_with_what_was_said():
    with Server(lambda body, n: "truncated") as server:
        (reply,), _ = ask(server, question(room=100), limits=Limits(max_output_tokens=400))
    assert [b["max_tokens"] for b in server.bodies] == [100, 200, 400]
    assert reply.unscored == "truncated: no end within 400 tokens" and reply.raw and not reply.failure


@pytest.mark.parametrize(
    "trouble, reason",
    [
        ("refusal", "refused"),
        ("filter", "filtered"),
        ("empty", "empty answer"),
        ("400", "server refused the question: 400"),
        ("413", "server refused the question: 413"),
    ],
)
def test_what_is_no_answer_is_unscored_and_not_sent_again(trouble, reason):
    with Server(lambda body, n: trouble) as server:
        (reply,), _ = ask(server, question())
    assert reply.unscored.startswith(reason) and reply.text is None and len(server.bodies) == 1


@pytest.mark.parametrize(
    "refuse, mode, n_more",
    [((), "json_schema", 0), (("json_schema",), "json_object", 1), (("json_schema", "json_object"), "text", 2)],
)
def test_structured_output_is_found_out_once(refuse, mode, n_more):
    with Server(refuse=refuse) as server:
        replies, client = ask(server, *(question(f"q{n}") for n in range(12)))
    assert all(r.text for r in replies) and client.shape.found() == {"output": mode}
    assert len(server.bodies) == 12 + n_more


def test_parameters_that_a_server_refuses_are_left_out_and_recorded():
    with Server(refuse=("seed", "temperature", "max_tokens", "system")) as server:
        (reply,), client = ask(server, question(seed=7))
    assert reply.text and client.shape.found() == {
        "output": "json_schema",
        "left_out": ["seed", "temperature", "system"],
    }
    assert set(server.bodies[-1]) == {"model", "messages", "max_completion_tokens", "response_format"}


def test_the_key_goes_into_the_header_and_a_refused_key_is_not_repeated_in_the_error():
    with Server(key="another") as server, pytest.raises(UserError) as caught:
        ask(server, question())
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}" and KEY not in str(caught.value)


def test_a_key_that_a_server_echoes_is_struck_out():
    with Server(lambda body, n: "400") as server:
        client = Client("tiny", QUICK, base_url=server.url)
    assert client._clean(f"bad {KEY} here") == "bad [key] here" and KEY not in repr(client.shape)


def test_a_used_up_account_ends_the_run():
    with Server(lambda body, n: "429:quota") as server, pytest.raises(UserError, match="quota is used up"):
        ask(server, question())


def test_a_server_that_answers_nobody_is_given_up():
    with Server(lambda body, n: "500") as server, pytest.raises(Unreachable, match="2 questions in a row"):
        ask(server, *(question(f"q{n}") for n in range(50)), limits=Limits(n_tries=1))
    assert len(server.bodies) <= 3  # those that gather had already let go


def test_no_more_requests_than_the_cap():
    with Server() as server, pytest.raises(Stopped, match="max-requests 5"):
        ask(server, *(question(f"q{n}") for n in range(20)), limits=Limits(max_requests=5))
    time.sleep(0.1)
    assert len(server.bodies) <= 5


def test_money_and_token_caps_are_never_passed():
    price = Price(input_usd=1000.0, output_usd=1000.0)
    for cap in ({"max_usd": 2.0}, {"max_tokens": 2000}):
        with Server() as server:

            async def go(server=server, cap=cap):
                client = Client("tiny", Limits(concurrency=4, **cap), base_url=server.url, price=price)
                done = await asyncio.gather(
                    *(client.ask(question(f"q{n}", room=200)) for n in range(60)), return_exceptions=True
                )
                await client.close()
                return done, client

            done, client = asyncio.run(go())
        assert any(isinstance(d, Stopped) for d in done) and sum(not isinstance(d, BaseException) for d in done) > 3
        assert client.budget.usd <= 2.0 and client.budget.n_tokens <= 2000


def test_a_money_cap_without_a_price_is_refused():
    with pytest.raises(UserError, match="no price is known for model tiny"):
        Client("tiny", Limits(max_usd=1.0), base_url="http://127.0.0.1:1/v1")


def test_the_public_url_needs_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="OPENAI_API_KEY is not set"):
        Client("tiny")


def test_concurrency_is_what_the_caller_sends_at_once_and_the_first_question_goes_alone():
    with Server(latency_s=0.1) as server:
        ask(server, *(question(f"q{n}") for n in range(9)))
    assert server.times[1] - server.times[0] >= 0.09 and server.most_under_way == 8


def test_rate_limits_are_kept_without_being_hit():
    with Server(per_window=(10, 1.0)) as server:
        replies, client = ask(
            server, *(question(f"q{n}") for n in range(25)), limits=Limits(requests_per_minute=590, concurrency=25)
        )
    assert all(r.text for r in replies) and not client.retries


def test_cost_counts_cached_tokens_at_their_price():
    with Server() as server:
        (reply,), _ = ask(server, question(), price=Price(input_usd=2.0, cached_input_usd=0.5, output_usd=8.0))
    u = reply.usage
    due = ((u.n_input_tokens - u.n_cached_tokens) * 2.0 + u.n_cached_tokens * 0.5 + u.n_output_tokens * 8.0) / 1e6
    assert u.n_cached_tokens > 0 and reply.usage.cost_usd == pytest.approx(due)


def test_a_server_without_usage_leaves_it_unmeasured():
    with Server(usage=False) as server:
        (reply,), _ = ask(server, question())
    assert reply.usage.n_input_tokens is None and reply.usage.cost_usd is None and reply.usage.n_requests == 1

"""The comment on a pull request: which one it is, and how it is kept up to date."""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancestat.errors import CommentError, ReadOnlyToken
from lancestat.review.comment import (
    MAX_CHARACTERS,
    CommentResult,
    GitHub,
    Outcome,
    PullRequest,
    fitted,
    marker,
    pull_request,
    upsert_comment,
)
from lancestat.review.values import NO_CHANGES
from tests.review.github_stub import BOT, GitHubStub, Reply, serving


def environment(tmp_path: Path, event: object) -> dict[str, str]:
    path = tmp_path / "event.json"
    path.write_text(event if isinstance(event, str) else json.dumps(event))
    return {
        "GITHUB_REPOSITORY": "some-owner/some.repo",
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_EVENT_NAME": "push",
    }


def test_the_event_names_the_pull_request(tmp_path: Path) -> None:
    request = pull_request(environment(tmp_path, {"pull_request": {"number": 12}}))
    assert request == PullRequest("some-owner/some.repo", 12)
    assert request.comments == "/repos/some-owner/some.repo/issues/12/comments"


def test_a_number_that_is_given_wins_and_needs_no_event() -> None:
    assert pull_request({"GITHUB_REPOSITORY": "o/r"}, 3) == PullRequest("o/r", 3)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"ref": "refs/heads/main"},
        {"pull_request": None},
        {"pull_request": {"number": "12"}},
        {"pull_request": {"number": True}},
        {"pull_request": {"number": 0}},
        {"number": 12},
        [],
        None,
    ],
)
def test_an_event_of_another_kind_is_one_clear_error(event: object, tmp_path: Path) -> None:
    with pytest.raises(CommentError, match=r"^LS610  the event \(push\) is not about") as raised:
        pull_request(environment(tmp_path, event))
    assert "--number" in str(raised.value.hint)


@pytest.mark.parametrize("event", ["", "{", "\x00"])
def test_an_event_that_cannot_be_read_is_one_clear_error(event: str, tmp_path: Path) -> None:
    with pytest.raises(CommentError, match=r"^LS610  GITHUB_EVENT_PATH does not name"):
        pull_request(environment(tmp_path, event))


def test_no_event_at_all_is_one_clear_error() -> None:
    with pytest.raises(CommentError, match=r"^LS610 .*not about a pull request"):
        pull_request({"GITHUB_REPOSITORY": "o/r"})
    with pytest.raises(CommentError, match=r"^LS610  GITHUB_EVENT_PATH does not name"):
        pull_request({"GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_PATH": "nowhere"})


@pytest.mark.parametrize(
    "repository", ["", "o", "o/r/s", "../user", "o/..", "o/r?x=1", "o/r\n", "/"]
)
def test_a_repository_that_would_lead_elsewhere_is_refused(repository: str) -> None:
    with pytest.raises(CommentError, match=r"^LS610  GITHUB_REPOSITORY is .*expected OWNER/NAME"):
        pull_request({"GITHUB_REPOSITORY": repository}, 1)


TOKEN = "ghs_TheTokenThatNobodyMaySee0123456789"
PERSON = {"login": "reviewer", "type": "User"}
MARKER = "<!-- lancestat:diff:shop -->"
LIST = "GET /repos/o/r/issues/7/comments?per_page=100&page=1"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def stub() -> Iterator[GitHubStub]:
    with serving(GitHubStub()) as served:
        yield served


class Keeper:
    """Keep the comment of the project `shop` up to date, and record the waits."""

    def __init__(self, stub: GitHubStub) -> None:
        self.stub = stub
        self.waited: list[float] = []

    def __call__(self, markdown: str, project: str = "shop") -> CommentResult:
        github = GitHub(self.stub.url, TOKEN, sleep=self.waited.append, timeout_seconds=5)
        return upsert_comment(github, PullRequest("o/r", 7), project, markdown)


@pytest.fixture
def keep(stub: GitHubStub) -> Keeper:
    return Keeper(stub)


def test_the_first_call_creates_a_comment(stub: GitHubStub, keep: Keeper) -> None:
    result = keep("### one change\n")
    assert result == CommentResult(
        Outcome.CREATED, "https://github.example/o/r/pull/7#issuecomment-1"
    )
    assert stub.bodies == [f"{MARKER}\n### one change\n"]
    assert stub.asked == [LIST, "POST /repos/o/r/issues/7/comments"]
    assert {seen.headers["Authorization"] for seen in stub.seen} == {f"Bearer {TOKEN}"}


def test_the_next_call_updates_the_same_comment(stub: GitHubStub, keep: Keeper) -> None:
    stub.add("a question", PERSON)
    keep("one")
    stub.add("an answer", PERSON)
    assert keep("two").outcome is Outcome.UPDATED
    assert stub.bodies == ["a question", f"{MARKER}\ntwo\n", "an answer"]
    assert stub.asked[-1] == "PATCH /repos/o/r/issues/comments/2"


@pytest.mark.parametrize("written", ["one\ntwo", "one\r\ntwo\r\n"])
def test_an_unchanged_comment_is_not_updated(written: str, stub: GitHubStub, keep: Keeper) -> None:
    stub.add(f"{MARKER}\n{written}")
    assert keep("one\ntwo\n").outcome is Outcome.UNCHANGED
    assert stub.asked == [LIST]


@pytest.mark.parametrize("nothing", ["", " \n", f"Nothing changes.\n\n{NO_CHANGES}\n"])
def test_without_changes_no_comment_is_made(nothing: str, stub: GitHubStub, keep: Keeper) -> None:
    assert keep(nothing) == CommentResult(Outcome.NOT_NEEDED)
    assert stub.comments == []


@pytest.mark.parametrize("nothing", ["", f"Nothing changes.\n\n{NO_CHANGES}\n"])
def test_a_comment_is_updated_when_its_changes_are_gone(
    nothing: str, stub: GitHubStub, keep: Keeper
) -> None:
    keep("one change")
    assert keep(nothing).outcome is Outcome.UPDATED
    assert len(stub.bodies) == 1
    assert stub.bodies[0].startswith(f"{MARKER}\nNothing changes.\n")


def test_each_project_of_a_repository_has_its_own_comment(stub: GitHubStub, keep: Keeper) -> None:
    keep("of the shop")
    keep("of both", "shop-and-more")
    keep("of the shop again")
    assert stub.bodies == [
        f"{MARKER}\nof the shop again\n",
        "<!-- lancestat:diff:shop-and-more -->\nof both\n",
    ]


def test_a_marker_is_one_hidden_line_that_names_its_project() -> None:
    names = ["a-b", "a--b", "a---b", "x-->", "--", "-%2D", "ü-ñ", "a<b", "a>b", "shop-"]
    lines = {marker(name) for name in names}
    assert len(lines) == len(names)
    for line in lines:
        inside = line.removeprefix("<!-- ").removesuffix(" -->")
        assert "--" not in inside
        assert ">" not in inside
        assert len(line.splitlines()) == 1


def test_a_comment_is_found_on_a_later_page(stub: GitHubStub, keep: Keeper) -> None:
    stub.page_size = 2
    for number in range(5):
        stub.add(f"remark {number}", PERSON)
    stub.add(f"{MARKER}\nold")
    assert keep("new").outcome is Outcome.UPDATED
    assert stub.bodies[5] == f"{MARKER}\nnew\n"
    assert len([line for line in stub.asked if line.startswith("GET")]) == 3


@pytest.mark.parametrize(
    ("body", "user"),
    [
        (f"> {MARKER}\n> quoted\n\nI disagree", PERSON),
        (f"what is\n{MARKER}\n?", BOT),
        (f"{MARKER}\npasted by a person", PERSON),
        (f"{MARKER} and more on its line", BOT),
    ],
)
def test_similar_comments_are_not_touched(
    body: str, user: dict[str, str], stub: GitHubStub, keep: Keeper
) -> None:
    stub.add(body, user)
    assert keep("ours").outcome is Outcome.CREATED
    assert stub.bodies == [body, f"{MARKER}\nours\n"]


def test_with_a_token_of_a_user_the_comment_of_that_user_is_updated(
    stub: GitHubStub, keep: Keeper
) -> None:
    stub.user, stub.author = PERSON, PERSON
    stub.add(f"{MARKER}\npasted by another", {"login": "another", "type": "User"})
    keep("one")
    assert keep("two").outcome is Outcome.UPDATED
    assert stub.bodies[1:] == [f"{MARKER}\ntwo\n"]


def test_of_two_comments_made_at_once_the_first_is_kept(stub: GitHubStub, keep: Keeper) -> None:
    stub.add(f"{MARKER}\none")
    stub.add(f"{MARKER}\none")
    keep("two")
    assert stub.bodies == [f"{MARKER}\ntwo\n", f"{MARKER}\none"]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_server_errors_are_retried(status: int, stub: GitHubStub, keep: Keeper) -> None:
    stub.script = [Reply(status, {"message": "trouble"})] * 3
    assert keep("one").outcome is Outcome.CREATED
    assert keep.waited == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("status", "headers", "waited"),
    [
        (429, {"Retry-After": "7"}, 7.0),
        (403, {"Retry-After": "3"}, 3.0),
        (503, {"Retry-After": "2"}, 2.0),
        (429, {}, 1.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, 0.0),
        (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        (429, {"Retry-After": "soon"}, 1.0),
    ],
)
def test_the_retry_after_header_is_respected(
    status: int, headers: dict[str, str], waited: float, stub: GitHubStub, keep: Keeper
) -> None:
    stub.script = [Reply(status, {"message": "slow down"}, headers)]
    assert keep("one").outcome is Outcome.CREATED
    assert keep.waited == [waited]


def test_a_long_rate_limit_is_not_waited_for(stub: GitHubStub, keep: Keeper) -> None:
    stub.script = [Reply(429, {"message": "slow down"}, {"Retry-After": "3600"})]
    with pytest.raises(CommentError, match=r"^LS611 .*: 429 slow down"):
        keep("one")
    assert keep.waited == []


def test_lasting_server_errors_are_one_error(stub: GitHubStub, keep: Keeper) -> None:
    stub.script = [Reply(502, {"message": "bad gateway"})] * 9
    with pytest.raises(CommentError, match=r"^LS611 .*: 502 bad gateway"):
        keep("one")
    assert len(stub.seen) == 5


@pytest.mark.parametrize(
    "doubtful", [Reply(502, is_done=True), Reply(0, is_done=True, hangs_up=True)]
)
def test_a_comment_that_was_made_without_an_answer_is_not_made_twice(
    doubtful: Reply, stub: GitHubStub, keep: Keeper
) -> None:
    stub.script = [None, doubtful]
    assert keep("one").outcome is Outcome.UNCHANGED
    assert stub.bodies == [f"{MARKER}\none\n"]


def test_a_comment_that_was_not_made_is_made_again(stub: GitHubStub, keep: Keeper) -> None:
    stub.script = [None, Reply(502), None, Reply(429, headers={"Retry-After": "1"})]
    assert keep("one").outcome is Outcome.CREATED
    assert stub.bodies == [f"{MARKER}\none\n"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_repository_that_was_renamed_is_followed(
    status: int, stub: GitHubStub, keep: Keeper
) -> None:
    moved = Reply(status, {"message": "Moved"}, {"Location": "/repos/o/r/issues/7/comments"})
    stub.script = [None, moved]
    assert keep("one").outcome is Outcome.CREATED
    assert [seen.method for seen in stub.seen] == ["GET", "POST", "POST"]
    assert stub.bodies == [f"{MARKER}\none\n"]


@pytest.mark.parametrize("step", ["redirect", "page"])
def test_the_token_is_sent_to_no_other_host(step: str, stub: GitHubStub, keep: Keeper) -> None:
    with serving(GitHubStub()) as other:
        if step == "redirect":
            stub.script = [Reply(302, None, {"Location": f"{other.url}/repos/o/r"})]
        else:
            stub.page_size = 1
            stub.comments = [{"body": "a"}, {"body": "b"}]
            stub.next_url = lambda url: url.replace(stub.url, other.url)
        with pytest.raises(CommentError, match=r"^LS614 .*where the token is not sent") as raised:
            keep("one")
        assert other.url in str(raised.value)
        assert other.seen == []


def test_circular_redirects_end(stub: GitHubStub, keep: Keeper) -> None:
    stub.script = [Reply(302, None, {"Location": "/repos"})] * 20
    with pytest.raises(CommentError, match=r"^LS614 .*again and again"):
        keep("one")


def test_endless_pages_end(stub: GitHubStub, keep: Keeper) -> None:
    stub.page_size = 1
    stub.comments = [{"body": "a"}, {"body": "b"}]
    stub.next_url = lambda url: url.replace("page=2", "page=1")
    assert keep("one").outcome is Outcome.CREATED
    assert len(stub.seen) == 101


def test_a_read_only_token_has_its_own_error(stub: GitHubStub, keep: Keeper) -> None:
    stub.script = [None, Reply(403, {"message": "Resource not accessible by integration"})]
    with pytest.raises(ReadOnlyToken, match=r"^LS613 .*: 403 Resource not accessible") as raised:
        keep("one")
    assert keep.waited == []
    assert pickle.loads(pickle.dumps(raised.value)).code == "LS613"


@pytest.mark.parametrize(
    ("status", "payload", "message"),
    [
        (401, {"message": "Bad credentials"}, "401 Bad credentials"),
        (404, {"message": "Not Found"}, "404 Not Found"),
        (
            422,
            {"message": "Validation Failed", "errors": [{"message": "body is too long"}]},
            "422 Validation Failed; body is too long",
        ),
        (410, ["no", "message"], "410 Gone"),
    ],
)
def test_an_error_has_the_message_of_github(
    status: int, payload: object, message: str, stub: GitHubStub, keep: Keeper
) -> None:
    stub.script = [Reply(status, payload)]
    with pytest.raises(CommentError) as raised:
        keep("one")
    assert raised.value.code == "LS612"
    assert message in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    "reply",
    [
        *(Reply(200, raw=raw) for raw in (b"<html>", b"\xff\xfe", b"")),
        *(Reply(200, payload) for payload in ({}, None, "text", 3)),
    ],
)
def test_an_answer_that_is_not_a_list_of_github_is_one_error(
    reply: Reply, stub: GitHubStub, keep: Keeper
) -> None:
    stub.script = [reply]
    with pytest.raises(CommentError, match=r"^LS615 "):
        keep("one")


def test_malformed_comments_are_ignored(stub: GitHubStub, keep: Keeper) -> None:
    strange = [None, 3, {}, {"body": None}, {"body": MARKER}, {"body": MARKER, "user": None}]
    stub.script = [Reply(200, strange)]
    assert keep("one").outcome is Outcome.CREATED


def test_an_unreachable_address_is_one_error() -> None:
    with serving(GitHubStub()) as gone:
        pass
    github = GitHub(gone.url, TOKEN, sleep=lambda _: None)
    with pytest.raises(CommentError, match=r"^LS611 .*does not answer: .*refused"):
        upsert_comment(github, PullRequest("o/r", 7), "shop", "one")


@pytest.mark.parametrize(
    "root",
    [
        "http://github.example",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "127.0.0.1",
        "https://",
        "https://user:secret@github.example",
        "https://[::1",
        "https://github.example:port",
    ],
)
def test_an_address_that_would_show_the_token_is_refused(root: str) -> None:
    with pytest.raises(CommentError, match=r"^LS610 .*expected https://HOST") as raised:
        GitHub(root, TOKEN)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("token", ["", " ", "a b", f"{TOKEN}\nX-Other: 1", "tökén"])
def test_a_malformed_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(CommentError, match=r"^LS610 .*GITHUB_TOKEN") as raised:
        GitHub("https://github.example", token)
    if token.strip():
        assert token not in "".join(traceback.format_exception(raised.value))


def test_no_error_contains_the_token(stub: GitHubStub) -> None:
    echo = {"message": f"Bad credentials: {TOKEN}", "errors": [{"code": TOKEN}]}
    location = {"Location": f"https://github.example/?access_token={TOKEN}"}
    replies = [
        *(Reply(status, echo) for status in (400, 401, 403, 404, 422)),
        Reply(429, echo, {"Retry-After": "999"}),
        Reply(302, None, location),
        Reply(302, None, {"Location": f"https://{TOKEN}.example"}),
        Reply(200, raw=TOKEN.encode()),
    ]
    for reply in replies:
        stub.script = [reply]
        github = GitHub(stub.url, TOKEN, sleep=lambda _: None)
        with pytest.raises(CommentError) as raised:
            upsert_comment(github, PullRequest("o/r", 7), "shop", "one")
        assert TOKEN not in "".join(traceback.format_exception(raised.value))
        assert TOKEN not in repr(raised.value)
        assert TOKEN not in repr(raised.value.__context__)
        assert TOKEN not in repr(github)


def test_a_body_that_is_too_long_is_cut_between_lines(stub: GitHubStub, keep: Keeper) -> None:
    lines = [f"line {number} {'x' * 90}" for number in range(1000)]
    keep("\n".join(lines))
    [body] = stub.bodies
    assert len(body) <= MAX_CHARACTERS
    text, cut = body.split("\n\n")
    assert cut == "(cut: GitHub takes no more)\n"
    assert text.splitlines() == [MARKER, *lines[: len(text.splitlines()) - 1]]
    assert fitted(body) == body

"""Who may look, and that no text on a page can act: hostile texts, strangers, other sites."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from episodes_of import ask, fill
from sites import ORIGIN, Markup, visited
from test_site import pages_of

from openconductor.errors import AuthFailed
from openconductor.store import Journal
from openconductor.ui.door import SESSION_S, TOKEN_S, Door, Visitor

KEYS = {"oc-ann": "ann", "oc-kim": "kim"}


@pytest.fixture
def store(tmp_path: Path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


async def test_hostile_text_is_shown_as_text_on_every_page(store) -> None:
    kinds = await fill(store)
    chosen = {"plain": kinds["hostile"], "rounds": kinds["hostile"]}
    async with visited(store) as visit:
        pages = await pages_of(visit.client, chosen)
        exported = await visit.client.get(f"/ui/episodes/{kinds['hostile']}/export")
        for address, page in {**pages, "export": exported}.items():
            markup = Markup(page.text)
            assert "alert(1)" in markup.text, address
            assert "img" not in markup.tags, address
            scripts = [one for one in markup.attributes if one[0] == "script"]
            assert markup.tags.count("script") == (0 if address == "export" else 1)
            assert all(name in ("src", "defer") for _, name, _ in scripts)
            names = {name for _, name, _ in markup.attributes}
            assert not [name for name in names if name.startswith("on") or name == "style"]
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", page.text)
            for link in markup.addresses:
                assert link.startswith(("/ui/", "?", "#")), (address, link)


async def test_every_answer_forbids_what_is_inline_elsewhere_or_framed(store) -> None:
    kinds = await fill(store)
    paths = ["/ui/episodes", "/ui/nothing", "/ui/style.css", "/ui/script.js", "/ui/episodes.json"]
    paths += [f"/ui/episodes/{kinds['plain']}/export", "/ui/episodes.csv"]
    async with visited(store) as visit:
        for path in paths:
            headers = (await visit.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'self'" in policy, path
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"


async def test_a_link_opens_the_page_once_and_a_session_is_a_cookie_of_this_site(store) -> None:
    async with visited(store, keys={}) as visit:
        token = visit.door.new_token(None)
        stranger = await visit.client.get("/ui/episodes")
        assert stranger.status_code == 401
        assert (await visit.client.get("/ui/episodes.json")).json() == {
            "error": "This page is for those who have its link or a key."
        }
        entered = await visit.enter(token, next="/ui/episodes?page=2")
        assert entered.headers["location"] == "/ui/episodes?page=2"
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "path=/ui" in cookie
        assert (await visit.client.get("/ui/episodes")).status_code == 200
        assert (await visit.client.get("/ui/session")).status_code == 204
        visit.client.cookies.clear()
        assert (await visit.enter(token)).status_code == 401, "the link was used"
        assert (await visit.client.get("/ui/session")).status_code == 401


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example", "/v1/models", "/ui/\\evil.example"]
)
async def test_entering_leads_nowhere_else(store, elsewhere: str) -> None:
    async with visited(store) as visit:
        entered = await visit.enter(visit.door.new_token(None), next=elsewhere)
        assert entered.headers["location"] == "/ui/episodes"


async def test_each_key_sees_its_own_episodes_only(store) -> None:
    own = {name: await ask(store, f"By {name}?") for name in ("ann", "kim")}
    nobody = await ask(store, "By nobody?")
    for name, episode in own.items():
        store.put_record(f"serve/{episode.id}", {"key": name, "model": "m"}, texts=False)
    store.flush()
    async with visited(store, keys=KEYS) as visit:
        assert (await visit.enter(key="oc-eve")).status_code == 401
        assert (await visit.enter(key="oc-ann")).status_code == 303
        listed = (await visit.client.get("/ui/episodes.json?key=kim")).json()["episodes"]
        assert [episode["id"] for episode in listed] == [own["ann"].id]
        assert own["kim"].id not in (await visit.client.get("/ui/episodes.csv")).text
        for other in (own["kim"].id, nobody.id):
            for path in ("", ".json", "/export", "/parts/0", "/parts/0-0.json"):
                answer = await visit.client.get(f"/ui/episodes/{other}{path}")
                assert answer.status_code == 404, path
                assert "By kim?" not in answer.text
            compared = await visit.client.get(f"/ui/compare?id={own['ann'].id}&id={other}")
            assert compared.status_code == 404
        visit.client.cookies.clear()
        bearer = {"authorization": "Bearer oc-kim"}
        by_header = (await visit.client.get("/ui/episodes.json", headers=bearer)).json()
        assert [episode["id"] for episode in by_header["episodes"]] == [own["kim"].id]
        link = (await visit.client.post("/ui/links", headers=bearer)).json()["link"]
        assert (await visit.enter(link.partition("#token=")[2])).status_code == 303
        listed = (await visit.client.get("/ui/episodes.json")).json()["episodes"]
        assert [episode["id"] for episode in listed] == [own["kim"].id]
        assert (await visit.client.post("/ui/links")).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"},
        {"origin": "null"},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
    ],
)
async def test_another_sites_page_cannot_enter_or_leave_for_somebody(store, headers) -> None:
    async with visited(store) as visit:
        token = visit.door.new_token(None)
        for path, fields in (("/ui/session", {"token": token}), ("/ui/leave", {})):
            answer = await visit.client.post(path, data=fields, headers=headers)
            assert answer.status_code == 403, path
        assert (await visit.client.get("/ui/episodes")).status_code == 200, "still there"
        assert (await visit.enter(token)).status_code == 303, "the token was not used up"


async def test_on_loopback_no_other_name_leads_to_the_page(store) -> None:
    async with visited(store) as visit:
        for host in ("evil.example", "127.0.0.1.evil.example", "[::2]", "", "evil:8321"):
            answer = await visit.client.get("/ui/episodes", headers={"host": host})
            assert answer.status_code == 403, host
        for host in ("localhost:1", "[::1]:8321", "127.0.0.1"):
            answer = await visit.client.get("/ui/episodes", headers={"host": host})
            assert answer.status_code == 200, host


@pytest.mark.parametrize(
    ("address", "is_secure"), [("https://page.example", True), ("http://page.example:81", False)]
)
async def test_behind_a_proxy_that_changes_the_host_a_listed_address_enters(
    store, address: str, is_secure: bool
) -> None:
    async with visited(store, keys=KEYS, origins=[address]) as visit:
        own = {"origin": address, "sec-fetch-site": "same-origin"}
        fields = {"key": "oc-ann"}
        entered = await visit.client.post("/ui/session", data=fields, headers=own)
        assert entered.status_code == 303
        assert ("secure" in entered.headers["set-cookie"].lower()) == is_secure
        for changed in ({"origin": "https://other.example"}, {"sec-fetch-site": "cross-site"}):
            refused = await visit.client.post("/ui/session", data=fields, headers=own | changed)
            assert refused.status_code == 403


async def test_leaving_ends_the_session(store) -> None:
    async with visited(store) as visit:
        cookies = dict(visit.client.cookies)
        own = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
        assert (await visit.client.post("/ui/leave", headers=own)).status_code == 303
        visit.client.cookies.update(cookies)
        assert (await visit.client.get("/ui/episodes")).status_code == 401


async def test_a_form_of_megabytes_is_refused(store) -> None:
    async with visited(store) as visit:
        assert (await visit.enter("x" * 2_000_000)).status_code == 413


def test_links_and_sessions_expire() -> None:
    now = 0.0
    door = Door(1, clock=lambda: now)
    session = door.exchange(token=door.new_token(None))
    assert session is not None
    cookies = {door.cookie: session}
    assert door.visitor({}, cookies) is not None
    now = SESSION_S
    assert door.visitor({}, cookies) is None
    token = door.new_token(None)
    now += TOKEN_S
    assert door.exchange(token=token) is None


def test_the_sessions_of_one_key_never_end_those_of_another() -> None:
    keys = {"Bearer oc-ann": "ann", "Bearer oc-kim": "kim"}

    def find_key(headers: Mapping[str, str]) -> str:
        if "authorization" not in headers:
            raise AuthFailed("no key", worker="server")
        return keys[headers["authorization"]]

    door = Door(1, find_key=find_key)
    sessions = {key: [door.exchange(key=key)] for key in ("oc-ann", "oc-kim")}
    for _ in range(1000):
        sessions["oc-kim"].append(door.exchange(key="oc-kim"))
    alive = [door.visitor({}, {door.cookie: one or ""}) for one in sessions["oc-kim"]]
    assert door.visitor({}, {door.cookie: sessions["oc-ann"][0] or ""}) == Visitor("ann")
    assert alive[0] is None
    assert alive[-100:] == [Visitor("kim")] * 100


async def test_data_are_never_html(store) -> None:
    kinds = await fill(store)
    async with visited(store) as visit:
        answer = await visit.client.get(f"/ui/episodes/{kinds['hostile']}.json")
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(answer.text)["question"].startswith("<script>")

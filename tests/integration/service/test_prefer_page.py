"""The page of preferences in a real Chromium, and what it stores while the service is killed."""

import os
import sqlite3
from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from tests.support.chromium import Browser, chromium, needs_chromium

from physai.rlhf.answers.answers import Answer, Pair
from physai.rlhf.answers.segment import Segment, SegmentLayout
from physai.rlhf.answers.store import PreferenceStore
from physai.sdk.cli.main import main
from physai.service.auth.tokens import Scope, TokenStore
from physai.service.database.engine import open_database
from physai.service.serving.process import ServiceProcess
from physai.service.settings import default_database
from physai.sim.tasks.registry import load_task

PAIRS, STEPS = 100, 25
TIMEOUT_S = 60.0
KEYS = {Keys.ARROW_LEFT: "left", Keys.ARROW_RIGHT: "right", Keys.ARROW_UP: "equal", Keys.ARROW_DOWN: "cannot_tell"}


def cartpole_database(path: Path) -> PreferenceStore:
    """Segments in which the pole turns at another speed each; the reward is that speed."""
    task = load_task("cartpole-swingup")
    layout = SegmentLayout(
        task=task.name,
        fingerprint=task.contract.fingerprint,
        step_dt=0.04,
        steps=STEPS,
        qpos=2,
        critic=4,
        actions=1,
        terms=("reward",),
    )
    store = PreferenceStore(path, layout=layout)
    time = np.arange(STEPS, dtype=np.float32) * 0.04
    segments: list[Segment] = []
    for number in range(PAIRS + 1):
        speed = 0.2 + 6.0 * number / PAIRS
        qpos = np.column_stack([0.3 * np.sin(time), speed * time]).astype(np.float32)
        segments.append(
            Segment(
                episode_seed=number,
                start_step=0,
                qpos=qpos,
                critic=np.repeat(qpos, 2, axis=1),
                action=np.zeros((STEPS, 1), np.float32),
                terms=np.full((STEPS, 1), speed, np.float32),
            )
        )
    numbers = store.add_segments("p" * 64, {"run": "r"}, segments)
    store.add_pairs([Pair(first=a, second=b, method="random") for a, b in pairwise(numbers)])
    return store


@pytest.fixture
def database(tmp_path: Path) -> Generator[PreferenceStore]:
    store = cartpole_database(tmp_path / "answers.db")
    yield store
    store.close()


@pytest.fixture
def service(tmp_path: Path, database: PreferenceStore) -> Generator[ServiceProcess]:
    running = ServiceProcess(tmp_path / "data", workers=0, preferences=database.path)
    running.start()
    yield running
    running.stop()


def wait(browser: Browser, condition: Callable[[], object]) -> None:
    WebDriverWait(browser, TIMEOUT_S, poll_frequency=0.05).until(lambda _: condition())


def text(browser: Browser, name: str) -> str:
    found = browser.find_elements(By.ID, name)
    return found[0].text if found else ""


def begin(browser: Browser, service: ServiceProcess, rater: str) -> None:
    browser.get(f"{service.url}/prefer")
    wait(browser, lambda: browser.find_elements(By.ID, "rater"))
    field = browser.find_element(By.ID, "rater")
    field.clear()
    field.send_keys(rater, Keys.ENTER)
    wait(browser, lambda: text(browser, "progress").startswith("Pair "))


def asked(browser: Browser, pair: int) -> None:
    """Waits until the page asks this pair and listens."""
    idle = 'return document.getElementById("main").ariaBusy === "false"'
    wait(browser, lambda: text(browser, "progress") == f"Pair {pair} of {PAIRS}" and browser.execute_script(idle))


def picture(browser: Browser, name: str) -> None:
    """For a person's eyes, where somebody asks for it."""
    if folder := os.environ.get("PHYSAI_PICTURES"):
        browser.save_screenshot(f"{folder}/{name}.png")


@pytest.mark.slow
@needs_chromium
def test_a_hundred_answers_and_two_kills(service: ServiceProcess, database: PreferenceStore) -> None:
    """Every answer is stored once, as it was given, whenever the service is killed."""
    given: list[str] = []
    with chromium() as browser:
        begin(browser, service, "ann")
        picture(browser, "prefer")
        for number in range(PAIRS):
            key = list(KEYS)[number % 4]
            asked(browser, number + 1)
            if number in (30, 70):
                # The answer finds no service; the page keeps it and sends it again.
                service.kill()
                ActionChains(browser).send_keys(key).perform()
                service.start()
            else:
                ActionChains(browser).send_keys(key).perform()
            given.append(KEYS[key])
            if number == 10:
                asked(browser, 12)
                ActionChains(browser).send_keys("u").perform()
                asked(browser, 11)
                ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
                given[-1] = "right"
        wait(browser, lambda: "Thank you" in text(browser, "main"))
        assert [entry for entry in browser.get_log("browser") if "TypeError" in entry["message"]] == []
    answers = database.answers()
    assert [answer.pair for answer in answers] == list(range(1, PAIRS + 1))
    assert [answer.choice for answer in answers] == given
    assert {answer.rater for answer in answers} == {"ann"}
    assert all(answer.latency_s is not None and answer.latency_s < TIMEOUT_S for answer in answers)
    # What was on the left is what the database says: sides are drawn anew for each pair.
    assert 0.2 < np.mean([answer.swapped for answer in answers]) < 0.8


@pytest.mark.slow
@needs_chromium
def test_it_draws_both_motions_also_on_a_phone(service: ServiceProcess, database: PreferenceStore) -> None:
    with chromium() as browser:
        begin(browser, service, "bob")
        pixels = """
            return [...document.querySelectorAll('canvas')].map((canvas) => {
              const gl = canvas.getContext('webgl2'), data = new Uint8Array(canvas.width * canvas.height * 4);
              gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, data);
              const colours = new Set();
              for (let at = 0; at < data.length; at += 4) colours.add(data.slice(at, at + 3).join());
              return colours.size;
            });"""
        wait(browser, lambda: all(count > 3 for count in browser.execute_script(pixels)))
        # Space stops both; the slider moves both to another picture.
        ActionChains(browser).send_keys(" ").perform()
        wait(browser, lambda: text(browser, "play") == "Play")
        pictures: list[str] = []
        for step, clock in ((0, "0.00 of 0.96 s"), (24, "0.96 of 0.96 s")):
            slider = "const s = document.getElementById('scrub'); s.value = arguments[0];"
            browser.execute_script(f"{slider} s.dispatchEvent(new Event('input'))", step)
            wait(browser, lambda clock=clock: text(browser, "clock") == clock)
            pictures.append(browser.execute_script("return document.querySelectorAll('canvas')[1].toDataURL()"))
        assert pictures[0] != pictures[1]
        browser.set_window_size(400, 800)
        width = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1]
        small = "return [...document.querySelectorAll('.choice')].map((b) => b.getBoundingClientRect().height)"
        assert all(height >= 44 for height in browser.execute_script(small))
        picture(browser, "prefer-phone")
        # Every control has a name that a screen reader says.
        unnamed = """
            return [...document.querySelectorAll('button,input,canvas')]
              .filter((e) => !(e.textContent || e.ariaLabel || e.labels?.length)).length"""
        assert browser.execute_script(unnamed) == 0
        browser.find_element(By.CSS_SELECTOR, "[data-answer=right]").click()
        wait(browser, lambda: text(browser, "progress") == f"Pair 2 of {PAIRS}")
    assert [answer.choice for answer in database.answers()] == ["right"]


@pytest.mark.slow
@needs_chromium
def test_a_pair_that_another_tab_answered_holds_up_nothing(service: ServiceProcess, database: PreferenceStore) -> None:
    with chromium() as browser:
        begin(browser, service, "cleo")
        asked(browser, 1)
        question = database.question(1, "cleo")
        database.record(Answer(key="o" * 8, pair=1, rater="cleo", choice="equal", swapped=question.swapped))
        ActionChains(browser).send_keys(Keys.ARROW_LEFT).perform()
        asked(browser, 2)
        ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
        asked(browser, 3)
        # What was refused is no longer kept, and undoing takes back what was stored.
        ActionChains(browser).send_keys("u").perform()
        asked(browser, 2)
    assert [(answer.pair, answer.choice) for answer in database.answers()] == [(1, "equal")]


@pytest.mark.slow
def test_a_damaged_database_is_named(service: ServiceProcess, database: PreferenceStore) -> None:
    url = f"{service.url}/v1/preferences"
    database.add_fit({"accuracy": 0.5})
    assert httpx.get(f"{url}/status").json()["model"] == {"accuracy": 0.5}
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE fits SET document = '{\"accuracy\": 1e999}'")
    assert httpx.get(f"{url}/status").status_code == 503
    with sqlite3.connect(database.path) as connection:
        connection.execute("ALTER TABLE answers RENAME TO others")
    connection.close()
    # Not a refusal: the page keeps the answer and sends it again.
    answer = {"key": "k" * 8, "pair": 1, "rater": "ann", "answer": "left", "latency_s": 1.0}
    for said in (
        httpx.post(f"{url}/answers", json=answer),
        httpx.post(f"{url}/undo", json={"key": "k" * 8}),
        httpx.get(f"{url}/next", params={"rater": "ann"}),
    ):
        assert said.status_code == 503
        assert "answers.db cannot be used" in said.json()["detail"]


Guarded = tuple[ServiceProcess, dict[str, dict[str, str]]]


@pytest.fixture
def guarded(tmp_path: Path, database: PreferenceStore) -> Generator[Guarded]:
    """A service that requires tokens, with the headers of two raters and of one who looks on."""
    data = tmp_path / "guarded"
    data.mkdir()
    store = TokenStore(open_database(default_database(data)))
    scopes: dict[str, Scope] = {"ann": "run", "bob": "run", "eve": "read"}
    headers = {name: {"authorization": f"Bearer {store.create(name, scope)}"} for name, scope in scopes.items()}
    running = ServiceProcess(data, workers=0, preferences=database.path)
    running.start()
    yield running, headers
    running.stop()


@pytest.mark.slow
def test_a_token_answers_in_its_own_name(guarded: Guarded, database: PreferenceStore) -> None:
    service, tokens = guarded
    url = f"{service.url}/v1/preferences"
    answer = {"key": "k" * 8, "pair": 1, "rater": "ann", "answer": "left", "latency_s": 1.0}
    assert httpx.get(f"{url}/rater").status_code == 401
    assert httpx.get(f"{url}/rater", headers=tokens["eve"]).json() == {"rater": "eve"}
    said = httpx.post(f"{url}/answers", json=answer, headers=tokens["bob"])
    assert said.status_code == 403
    assert "'bob' answers in its own name, not as 'ann'" in said.json()["detail"]
    assert httpx.post(f"{url}/answers", json={**answer, "rater": "eve"}, headers=tokens["eve"]).status_code == 403
    assert database.answers() == []
    assert httpx.post(f"{url}/answers", json=answer, headers=tokens["ann"]).json() == {"stored": True}
    assert httpx.get(f"{url}/next", params={"rater": "ann"}, headers=tokens["bob"]).status_code == 403
    assert httpx.get(f"{url}/next", params={"rater": "bob"}, headers=tokens["bob"]).json()["pair"]["id"] == 1
    # Neither are answers of others taken back; whether there is one is not told.
    assert httpx.post(f"{url}/undo", json={"key": "k" * 8}, headers=tokens["bob"]).status_code == 404
    assert [answer.rater for answer in database.answers()] == ["ann"]
    assert httpx.post(f"{url}/undo", json={"key": "k" * 8}, headers=tokens["ann"]).status_code == 200
    assert database.answers() == []


def test_without_tokens_a_name_is_chosen(service: ServiceProcess) -> None:
    assert httpx.get(f"{service.url}/v1/preferences/rater").json() == {"rater": None}


@pytest.mark.slow
@needs_chromium
def test_the_page_answers_in_the_name_of_the_token(guarded: Guarded, database: PreferenceStore) -> None:
    service, tokens = guarded
    with chromium() as browser:
        browser.get(f"{service.url}/prefer")
        for name in ("ann", "bob"):
            token = tokens[name]["authorization"].removeprefix("Bearer ")
            browser.execute_script("sessionStorage.setItem('physai-token', arguments[0])", token)
            if name == "bob":
                # An answer of ann's that was not sent is not sent in bob's name, and holds nothing up.
                unsent = '[{"key": "uuuuuuuu", "pair": 2, "rater": "ann", "answer": "left", "latency_s": 1}]'
                browser.execute_script("localStorage.setItem('physai-unsent-answers', arguments[0])", unsent)
            browser.get(f"{service.url}/prefer")
            asked(browser, 1)
            ActionChains(browser).send_keys(Keys.ARROW_LEFT).perform()
            asked(browser, 2)
    assert [(answer.pair, answer.rater) for answer in database.answers()] == [(1, "ann"), (1, "bob")]


@pytest.mark.slow
def test_what_it_refuses(service: ServiceProcess, database: PreferenceStore) -> None:
    url = f"{service.url}/v1/preferences"
    answer = {"key": "k" * 8, "pair": 1, "rater": "ann", "answer": "left", "latency_s": 1.0}
    assert httpx.post(f"{url}/answers", json=answer).json() == {"stored": True}
    assert httpx.post(f"{url}/answers", json=answer).json() == {"stored": False}
    for change, status in (
        ({"key": "l" * 8}, 409),  # the pair is answered
        ({"answer": "right"}, 409),  # the key belongs to another answer
        ({"pair": 1000, "key": "m" * 8}, 409),
        ({"answer": "maybe"}, 422),
        ({"latency_s": -1.0}, 422),
        ({"rater": ""}, 422),
        ({"more": 1}, 422),
    ):
        assert httpx.post(f"{url}/answers", json=answer | change).status_code == status, change
    assert httpx.get(f"{url}/segments/1000").status_code == 404
    assert httpx.post(f"{url}/undo", json={"key": "z" * 8}).status_code == 404
    assert httpx.post(f"{url}/undo", json={"key": "k" * 8}).status_code == 200
    assert httpx.get(f"{url}/next", params={"rater": "ann"}).json()["pair"]["id"] == 1
    # A retransmission of what was undone does not bring it back.
    assert httpx.post(f"{url}/answers", json=answer).json() == {"stored": False}
    assert database.answers() == []


def test_a_database_that_cannot_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve = ["sim", "serve", "--port", "8801", "--data", str(tmp_path / "data"), "--preferences"]
    assert main([*serve, str(tmp_path / "none.db")]) == 2
    assert "does not exist" in capsys.readouterr().err
    layout = cartpole_database(tmp_path / "cartpole.db").layout
    PreferenceStore(tmp_path / "own.db", layout=layout.model_copy(update={"task": "/tmp/task.py"})).close()
    assert main([*serve, str(tmp_path / "own.db")]) == 2
    assert "is not built in; add --preferences-model" in capsys.readouterr().err
    assert main([*serve, str(tmp_path / "cartpole.db"), "--preferences-model", "so101"]) == 2
    assert "hold 2 positions" in capsys.readouterr().err

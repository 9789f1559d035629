"""The page in a real Chromium: every view shows what the service has, also on a phone and when the service is gone."""

import io
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from tests.support.chromium import Browser, chromium, needs_chromium
from tests.support.robot_zips import arm_with_mesh
from tests.support.service import trained_policy

from physai.gates.report.html import Page, html_report
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.cli.main import main
from physai.sdk.evidence.origin import KINDS, Origin, OriginKind
from physai.sdk.evidence.verdict import Evidence, GateResult, Measurement, Verdict, VerdictOutcome
from physai.service import RemoteSession
from physai.service.client.service import request
from physai.service.database.engine import open_database
from physai.service.jobs.queue import JobQueue
from physai.service.serving.process import ServiceProcess, running_service
from physai.service.settings import default_database

POLICY = Path(__file__).parents[2] / "data" / "policies" / "cartpole-00"
TIMEOUT_S = 60.0

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    running = ServiceProcess(tmp_path_factory.mktemp("service") / "data")
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with chromium() as driver:
        yield driver


def wait(browser: Browser, condition: Callable[[], object]) -> None:
    WebDriverWait(browser, TIMEOUT_S, poll_frequency=0.2).until(lambda _: condition())


def text(browser: Browser) -> str:
    return browser.find_element(By.ID, "main").text


def test_empty_then_a_validation_from_the_page(service: ServiceProcess, browser: Browser) -> None:
    browser.get(service.url)
    wait(browser, lambda: "No jobs yet" in text(browser))
    for view, empty in (("policies", "No policies yet"), ("twins", "No twins yet"), ("sessions", "No sessions")):
        browser.get(f"{service.url}/#/{view}")
        wait(browser, lambda empty=empty: empty in text(browser))
    browser.get(f"{service.url}/#/validate")
    wait(browser, lambda: browser.find_elements(By.ID, "policy"))
    browser.find_element(By.ID, "policy").send_keys(str(POLICY / "policy.onnx"))
    browser.find_element(By.ID, "golden").send_keys(str(POLICY / "golden.npz"))
    browser.find_element(By.CSS_SELECTOR, "form button").click()
    wait(browser, lambda: "contract: FAIL" in text(browser))
    wait(browser, lambda: browser.find_elements(By.TAG_NAME, "iframe"))
    browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
    assert "different contracts" in browser.find_element(By.TAG_NAME, "body").text
    browser.switch_to.default_content()
    browser.get(f"{service.url}/#/policies")
    wait(browser, lambda: "FAIL" in text(browser))
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors


def test_a_verdict_is_shown_whatever_jobs_came_after_it(service: ServiceProcess, browser: Browser) -> None:
    jobs = JobQueue(open_database(default_database(service.data)))
    first = next(service.client.jobs())["id"]
    for number in range(110):
        jobs.cancel(jobs.submit("play", {"policy": "0" * 64, "seed": number}))
    assert len(list(service.client.jobs())) == 111
    browser.get(f"{service.url}/#/policies")
    wait(browser, lambda: "cartpole-swingup" in text(browser))
    assert "FAIL" in text(browser)
    assert "not validated" not in text(browser)
    browser.get(f"{service.url}/#/jobs")
    wait(browser, lambda: browser.find_elements(By.PARTIAL_LINK_TEXT, "Older jobs"))
    assert first not in text(browser)
    browser.find_element(By.PARTIAL_LINK_TEXT, "Older jobs").click()
    wait(browser, lambda: first in text(browser))
    browser.find_element(By.PARTIAL_LINK_TEXT, "Newest jobs").click()
    wait(browser, lambda: first not in text(browser) and "play" in text(browser))


def test_a_session_moves_in_three_dimensions(service: ServiceProcess, browser: Browser) -> None:
    with RemoteSession.create(service.url, "ur10e-reach", worlds=2, randomise=False) as session:
        start = session.reset()["joint_pos"]
        browser.get(f"{service.url}/#/sessions")
        wait(browser, lambda: session.description["id"] in text(browser))
        browser.find_element(By.PARTIAL_LINK_TEXT, session.description["id"]).click()
        wait(browser, lambda: browser.find_elements(By.TAG_NAME, "iframe"))
        browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
        wait(browser, lambda: browser.find_elements(By.TAG_NAME, "canvas"))

        def picture() -> npt.NDArray[np.float64]:
            shot = browser.find_element(By.TAG_NAME, "canvas").screenshot_as_png
            # The left half, because panels lie on the right one.
            image = np.asarray(Image.open(io.BytesIO(shot)).convert("L"), np.float64)
            return image[:, : image.shape[1] // 2]

        def is_still() -> bool:
            one, two = picture(), picture()
            return bool(one.std() > 5.0 and np.abs(one - two).max() < 2.0)

        # Software rendering takes seconds until the light has settled.
        wait(browser, is_still)
        before = picture()
        for step in range(40):
            session.step({"joint_pos_target": start + 0.02 * step})
        wait(browser, is_still)
        changed = np.abs(picture() - before) > 30.0
        assert 0.002 < changed.mean() < 0.5, f"{changed.mean():.4f} of the picture changed"
        browser.switch_to.default_content()
    browser.refresh()
    wait(browser, lambda: "does not exist or was closed" in text(browser))


def test_two_policies_side_by_side(service: ServiceProcess, browser: Browser) -> None:
    for seed in (0, 1):
        service.client.register("policy", trained_policy(service, seed=seed))
    browser.get(f"{service.url}/#/compare")
    wait(browser, lambda: browser.find_elements(By.ID, "b"))
    # Newest first: the two that were just registered.
    browser.find_element(By.CSS_SELECTOR, "form button").click()
    wait(browser, lambda: browser.find_elements(By.TAG_NAME, "iframe") or "Jobs" in text(browser))
    assert "return of each episode" in text(browser)
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert [row.split()[0] for row in rows] == ["A", "B"]
    browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
    wait(browser, lambda: browser.find_elements(By.TAG_NAME, "canvas"))
    browser.switch_to.default_content()


def test_a_refused_file_says_why(service: ServiceProcess, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "policy.onnx").write_bytes(b"no policy")
    browser.get(f"{service.url}/#/jobs")
    browser.get(f"{service.url}/#/validate")
    wait(browser, lambda: browser.find_elements(By.ID, "policy"))
    browser.find_element(By.ID, "policy").send_keys(str(tmp_path / "policy.onnx"))
    browser.find_element(By.CSS_SELECTOR, "form button").click()
    wait(browser, lambda: "the policy" in browser.find_element(By.CSS_SELECTOR, "[role=alert]").text)


def test_sessions_and_a_phone(service: ServiceProcess, browser: Browser) -> None:
    browser.set_window_size(390, 844)
    with RemoteSession.create(service.url, "cartpole-swingup", worlds=2) as session:
        browser.get(f"{service.url}/#/sessions")
        wait(browser, lambda: session.description["id"] in text(browser))
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.set_window_size(1200, 900)


def test_a_report_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    measured = Measurement(
        name="success_rate.measured", value=0.914, lower=0.807, upper=0.974, confidence=0.95, threshold=0.8
    )
    gates = tuple(
        GateResult(
            gate=name,
            outcome=VerdictOutcome.PASS,
            question="Is it robust to delay, noise, jitter, pushes and payload?",
            method="by episodes",
            threshold="80 %",
            episodes=384,
            measured=(measured,),
        )
        for name in ("robustness", "non-inferiority")
    )
    verdict = Verdict(
        policy_sha256="1" * 64,
        contract_fingerprint="2" * 64,
        twin_hash="3" * 64,
        gates_sha256="4" * 64,
        created="2026-11-21T12:00:00Z",
        gates=gates,
        outcome=VerdictOutcome.PASS,
        versions={"numpy": "2.0"},
        physai_version="0.1.0",
    )
    page = Page(task="reach", criterion="within 2 cm", policy="run/export/policy.onnx", twin="twin.json")
    (tmp_path / "report.html").write_text(html_report(verdict, page))
    browser.set_window_size(420, 844)
    browser.get((tmp_path / "report.html").as_uri())
    width = int(browser.execute_script("return window.innerWidth"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    cells = browser.find_elements(By.CSS_SELECTOR, ".gates td:not(.optional)")
    assert len(cells) == 8
    assert all(cell.rect["x"] + cell.rect["width"] <= width for cell in cells)
    assert "91.4%" in browser.find_element(By.CSS_SELECTOR, ".gates").text
    browser.set_window_size(1200, 900)


def test_a_verdict_is_shown_as_everywhere_else(service: ServiceProcess, browser: Browser) -> None:
    """A PASS on evidence that no robot accepts by default is not a bare PASS in the lists of jobs and policies."""
    gate = GateResult(gate="contract", outcome=VerdictOutcome.PASS, question="?", method="-", threshold="-", episodes=1)
    verdicts = [
        Verdict(
            policy_sha256="1" * 64,
            contract_fingerprint="2" * 64,
            twin_hash="3" * 64,
            gates_sha256="4" * 64,
            created="2026-11-21T12:00:00Z",
            evidence=Evidence(twin=origin(twin), latency=origin(latency)),
            gates=(gate,),
            outcome=VerdictOutcome.PASS,
            versions={},
            physai_version="0.1.0",
        )
        for twin in KINDS
        for latency in KINDS
    ]
    browser.get(f"{service.url}/#/jobs")
    script = """
      const [documents, done] = arguments;
      const shown = (verdict, document) => verdict(JSON.parse(document)).textContent;
      import("/page/elements.js").then(({ verdict }) => done(documents.map((one) => shown(verdict, one))));
    """
    shown = browser.execute_async_script(script, [canonical_json(verdict).decode() for verdict in verdicts])
    assert shown == [verdict.shown for verdict in verdicts]
    assert shown.count("PASS") == 1, "where both are from a robot"
    assert "PASS, only accepting computer, stand-in" in shown


def origin(kind: OriginKind) -> Origin:
    return Origin(kind=kind, robot=None if kind in ("computer", "unknown") else "arm")


def test_what_robots_run(service: ServiceProcess, browser: Browser) -> None:
    browser.get(f"{service.url}/#/robots")
    wait(browser, lambda: "physai flash HOST BUNDLE --server URL" in text(browser))
    policy = service.client.register("policy", service.client.upload(POLICY / "policy.onnx"))["sha256"]
    flashed = {"unit": "cell-1", "bundle": "0" * 64, "policy": policy, "task": "cartpole-swingup", "version": 4711}
    failed = flashed | {"bundle": "1" * 64, "version": 4712, "reason": "<img src=x onerror=alert(1)>" + "x" * 900}
    for report in (flashed | {"outcome": "committed"}, failed | {"outcome": "rolled-back"}):
        request("POST", service.url, "/v1/installations", json=report)
    wait(browser, lambda: "rolled-back" in text(browser))
    cells = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "td")]
    assert cells[:4] == ["cell-1", policy[:12], "cartpole-swingup", "4711"]
    assert cells[4].startswith("committed\nreported by local\nversion 4712, ")
    assert "<img src=x onerror=alert(1)>" in cells[4], "shown as text"
    browser.set_window_size(420, 844)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.set_window_size(1200, 900)
    browser.get(f"{service.url}/#/policies")
    wait(browser, lambda: "cell-1" in text(browser))


def test_by_keyboard(service: ServiceProcess, browser: Browser) -> None:
    browser.get("about:blank")
    browser.get(f"{service.url}/#/jobs")
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "td a"))
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to content"
    browser.switch_to.active_element.send_keys(Keys.TAB, Keys.TAB)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait(browser, lambda: browser.current_url.endswith("#/policies"))


def test_a_refresh_keeps_the_keyboards_place(service: ServiceProcess, browser: Browser) -> None:
    browser.get(f"{service.url}/#/jobs")
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "td a"))
    first = browser.find_element(By.CSS_SELECTOR, "td a")
    name = first.text
    browser.execute_script("arguments[0].focus()", first)
    service.client.cancel(service.client.submit("train", {"task": "cartpole-swingup"}))
    wait(browser, lambda: browser.find_element(By.CSS_SELECTOR, "td a") != first)
    assert browser.switch_to.active_element.text == name


def test_a_service_that_is_gone(service: ServiceProcess, browser: Browser) -> None:
    browser.get(f"{service.url}/#/jobs")
    wait(browser, lambda: "play" in text(browser))
    service.kill()
    wait(browser, lambda: "does not answer" in browser.find_element(By.TAG_NAME, "body").text)
    assert "play" in text(browser)
    service.start()
    wait(browser, lambda: "does not answer" not in browser.find_element(By.TAG_NAME, "body").text)


def test_a_robot_of_ones_own_is_uploaded_and_shown(service: ServiceProcess, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "my arm.zip").write_bytes(arm_with_mesh())
    browser.get(f"{service.url}/#/robots/upload")
    wait(browser, lambda: browser.find_elements(By.ID, "robotfile"))
    browser.find_element(By.ID, "robotfile").send_keys(str(tmp_path / "my arm.zip"))
    browser.find_element(By.CSS_SELECTOR, "form button").click()
    wait(browser, lambda: "shoulder_pan_joint" in text(browser))
    assert "my_arm.xml" in text(browser)
    browser.get(f"{service.url}/#/robots")
    wait(browser, lambda: "my_arm, version 1" in text(browser))


def test_a_trained_policy_goes_on_to_its_validation(service: ServiceProcess, browser: Browser) -> None:
    job = service.client.submit("train", {"task": "cartpole-swingup", "iterations": 1, "worlds": 16})
    for _ in service.client.follow(job):
        pass
    found = service.client.job(job)
    assert found["state"] == "succeeded", found
    policy = next(entry["sha256"] for entry in found["artefacts"] if entry["name"].endswith("policy.onnx"))
    browser.get(f"{service.url}/#/jobs/{job}")
    wait(browser, lambda: "Register and validate this policy" in text(browser))
    browser.find_element(By.XPATH, "//button[contains(., 'Register and validate')]").click()
    wait(browser, lambda: browser.find_elements(By.ID, "known"))
    assert browser.find_element(By.ID, "known").get_attribute("value") == policy
    accepted = browser.find_elements(By.CSS_SELECTOR, "[name=accept]:checked")
    assert [box.get_attribute("value") for box in accepted] == ["robot"]


def test_every_request_is_described_without_the_internet(service: ServiceProcess, browser: Browser) -> None:
    browser.get_log("browser")  # what other tests left
    browser.get(f"{service.url}/docs")
    wait(browser, lambda: "POST /v1/sessions" in text(browser))
    for path in httpx.get(f"{service.url}/openapi.json").json()["paths"]:
        assert f" {path}" in text(browser), path
    source = browser.page_source
    assert "http" not in source.replace(service.url, "").replace("https://", "http://").split("<body>")[0]
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_a_wrong_token_is_said(browser: Browser, tmp_path: Path) -> None:
    assert main(["sim", "tokens", "create", "ci", "--scope", "read", "--data", str(tmp_path / "data")]) == 0
    with running_service(tmp_path / "data", workers=0) as protected:
        browser.get(protected.url)
        wait(browser, lambda: browser.find_element(By.ID, "token").is_displayed())
        browser.find_element(By.ID, "token").send_keys("physai_wrong" + Keys.ENTER)
        wait(browser, lambda: "unknown, revoked or expired" in browser.find_element(By.ID, "refusal").text)

"""Questions of a preference database and the answers to them, over HTTP."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict, Field

from physai.rlhf.answers.agreement import agreement, consistency
from physai.rlhf.answers.answers import MAX_NAME, Answer, Choice
from physai.rlhf.answers.segment import DatabaseError, PreferenceError
from physai.rlhf.answers.store import PreferenceStore
from physai.service.auth.access import LOCAL, Caller, Identity, requires
from physai.service.problems import ProblemError
from physai.service.view.preferences.preference_motion import drawn_model, motion, scene

AHEAD = 2
"""Questions after the next one whose segments the page may load already."""

Rater = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,64}$")]


class GivenAnswer(BaseModel):
    """An answer as a page sends it; sent again with the same key it counts once."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: Key
    pair: Annotated[int, Field(ge=1, le=2**53)]
    rater: Rater
    answer: Choice
    latency_s: Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)] | None = None


class Undo(BaseModel):
    """Identity of the answer to take back."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: Key


def _own_name(caller: Identity) -> str | None:
    """The name that a caller answers under: that of the token, if tokens are required; None for any."""
    return None if caller is LOCAL else caller.name


def _require_own(caller: Identity, rater: str) -> None:
    own = _own_name(caller)
    if own is not None and rater != own:
        raise ProblemError(
            403, "other-rater", f"the token {own!r} answers in its own name, not as {rater!r}; use their token"
        )


@contextmanager
def _refusals(status: int, code: str) -> Generator[None]:
    """Answers a store's refusals with this status; a database that cannot be used now is 503, and sent again."""
    try:
        yield
    except DatabaseError as error:
        raise ProblemError(503, "storage", str(error)) from error
    except PreferenceError as error:
        raise ProblemError(status, code, str(error)) from error


def preference_routes(database: Path | None, robot: Path | None) -> APIRouter:
    """The routes below `/v1/preferences`; without a database each says so.

    Raises:
        PreferenceError: the database cannot be opened, or its segments cannot be drawn.
    """
    router = APIRouter(prefix="/v1/preferences", tags=["preferences"])
    if database is None:

        @router.api_route("/{path:path}", methods=["GET", "POST"], include_in_schema=False)
        def missing(path: str) -> None:
            raise ProblemError(
                404, "no-preferences", "this service has no preference database; start it with --preferences DB"
            )

        return router
    store = PreferenceStore(database)
    _add_motions(router, store, robot)
    _add_questions(router, store)
    return router


def _add_motions(router: APIRouter, store: PreferenceStore, robot: Path | None) -> None:
    """Adds the data that a page draws."""
    model = drawn_model(store.layout, robot)
    shapes = scene(model)
    # MuJoCo's data is not for several threads at once, and neither are readers' pictures urgent.
    drawing = threading.Lock()

    @router.get("/scene", dependencies=[requires("read")])
    def get_scene() -> dict[str, Any]:
        """The robot's shapes."""
        return shapes

    @router.get("/segments/{number}", dependencies=[requires("read")])
    def get_segment(number: Annotated[int, PathParameter(ge=1, le=2**53)]) -> dict[str, Any]:
        """A segment's motion."""
        with _refusals(404, "unknown-segment"):
            segment = store.segments([number])[number]
        with drawing:
            return motion(model, segment, step_dt=store.layout.step_dt)


def _add_questions(router: APIRouter, store: PreferenceStore) -> None:
    """Adds a page's questions and its answers to them."""

    @router.get("/rater")
    def get_rater(caller: Caller) -> dict[str, str | None]:
        """The name that answers are stored under; null if the page may choose one, as where no token is required."""
        caller.require("read")
        return {"rater": _own_name(caller)}

    @router.get("/next")
    def get_next(rater: Annotated[Rater, Query()], caller: Caller) -> dict[str, Any]:
        """The first pair that a rater has not answered, and how many there are."""
        caller.require("read")
        _require_own(caller, rater)
        with _refusals(422, "invalid"):
            questions = store.open_questions(rater, limit=1 + AHEAD)
            answered, total = store.progress(rater)
        first = questions[0] if questions else None
        return {
            "pair": None if first is None else {"id": first.pair, "left": first.left, "right": first.right},
            "answered": answered,
            "total": total,
            "upcoming": [number for later in questions[1:] for number in (later.left, later.right)],
        }

    @router.post("/answers")
    def post_answer(body: GivenAnswer, caller: Caller) -> dict[str, Any]:
        """Stores an answer; `stored` is false if it was stored before."""
        caller.require("run")
        _require_own(caller, body.rater)
        with _refusals(409, "not-stored"):
            answer = Answer(
                key=body.key,
                pair=body.pair,
                rater=body.rater,
                choice=body.answer,
                swapped=store.question(body.pair, body.rater).swapped,
                latency_s=body.latency_s,
            )
            return {"stored": store.record(answer)}

    @router.post("/undo")
    def post_undo(body: Undo, caller: Caller) -> dict[str, Any]:
        """Takes an answer back; the pair is asked again."""
        caller.require("run")
        with _refusals(404, "unknown-answer"):
            store.withdraw(body.key, rater=_own_name(caller))
        return {"withdrawn": body.key}

    @router.get("/status", dependencies=[requires("read")])
    def get_status() -> dict[str, Any]:
        """Answers, how far they agree, and what the latest reward model has learnt from them."""
        # Nothing was asked for that could be wrong, so what is refused is the database.
        with _refusals(503, "storage"):
            answers, pairs, fit = store.answers(), store.pairs(), store.last_fit()
        repeats = consistency(pairs, answers)
        return {
            "answers": len(answers),
            "raters": sorted({answer.rater for answer in answers}),
            "alpha": agreement(answers),
            "agreement": {"repeated": repeats.repeated, "same": repeats.same},
            "model": fit,
        }

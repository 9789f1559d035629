"""A workflow file as data: stages that run `physai` verbs, with inputs, outputs, resources and images."""

import re
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from physai.sdk.base.process.software import IMAGE_DIGEST, IMAGE_VARIABLE

Platform: TypeAlias = Literal["linux/amd64", "linux/arm64"]
"""Operating system and architecture as OCI images name them."""

# KubeRay allows 47 characters in the name of a RayJob, and a stage's job is WORKFLOW-STAGE.
WorkflowName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,20}[a-z0-9])?$")]
StageName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,22}[a-z0-9])?$")]
Key: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
RelativePath: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_. /-]{0,511}$")]


def _no_template(word: str) -> str:
    # OSMO expands templates and removes comments in a whole file; no verb has a use for either.
    if any(start in word for start in ("{{", "{%", "{#")):
        raise ValueError(f"{word!r} holds a template of OSMO, which other runs do not expand; write it out")
    return word


Word: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096), AfterValidator(_no_template)]
Command: TypeAlias = Annotated[tuple[Word, ...], Field(min_length=1, max_length=256)]
ExitCode: TypeAlias = Annotated[int, Field(ge=0, le=125)]

MAX_ENTRIES = 200
"""Maximum number of stages, and of entries in each of their lists."""
_MANY = Field(default_factory=dict, max_length=MAX_ENTRIES)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, populate_by_name=True)


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"expected a list of words, [{', '.join(value.split()[:3])}, …], got one text")
    # YAML reads `--seed 0` as a number, and the order of words is all that matters.
    if not isinstance(value, list):
        return value
    words = cast("list[Any]", value)
    return [str(word) if isinstance(word, int | float) and not isinstance(word, bool) else word for word in words]


def _as_output(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class Image(_Record):
    """A container image."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9_./:@-]{0,254}$")]
    """Reference with a tag or digest."""
    platforms: Annotated[tuple[Platform, ...], Field(min_length=1, max_length=2)]
    """Platforms that the image was built for."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables that tell programs in the image its digest; none without one."""
        digest = self.name.partition("@")[2]
        return {IMAGE_VARIABLE: digest} if re.fullmatch(IMAGE_DIGEST, digest) else {}


class Resources(_Record):
    """Resources that a stage, or a member of a gang, occupies while it runs."""

    cpus: Annotated[int, Field(ge=1, le=1024)] = 1
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    memory: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}(Mi|Gi)$")] = "1Gi"
    """Main memory, `512Mi` or `4Gi`."""
    platform: Platform | None = None
    """Platform it must run on; None for any that its image has."""

    @property
    def memory_bytes(self) -> int:
        """Main memory [B]."""
        return int(self.memory[:-2]) * {"Mi": 1 << 20, "Gi": 1 << 30}[self.memory[-2:]]


class Input(_Record):
    """A file or folder that a stage reads: of another stage, or next to the workflow file."""

    source: Annotated[str | None, Field(alias="from", pattern=r"^[a-z][a-z0-9-]*\.[a-z][a-z0-9_]*$")] = None
    """Output of another stage, `STAGE.OUTPUT`."""
    path: RelativePath | None = None
    """File or folder, relative to that of the workflow file."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.source is None) == (self.path is None):
            raise ValueError(f"an input has either `from` or `path`, got from {self.source!r} and path {self.path!r}")
        return self

    @property
    def origin(self) -> tuple[str, str] | None:
        """Stage and output that it comes from; None for a path."""
        if self.source is None:
            return None
        stage, _, output = self.source.partition(".")
        return stage, output


class Output(_Record):
    """A file or folder that a stage writes."""

    path: RelativePath
    """Relative to the stage's fresh folder."""
    copy_of: Key | None = None
    """Input that is copied here before the command starts, which may then change it."""


class Credential(_Record):
    """A secret that a stage gets in an environment variable."""

    env: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
    secret: Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
    """Name of the secret in the cluster."""
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    """Entry of the secret."""


class GangMember(_Record):
    """One command of a gang, whose members run at the same time."""

    name: StageName
    command: Annotated[Command, BeforeValidator(_as_text)]
    lead: bool = False
    """The stage ends when its lead ends, with the lead's exit code; the other members are stopped then."""
    resources: Resources = Resources()
    image: Key | None = None
    """Image of this member; None for the stage's."""


class WorkflowStage(_Record):
    """A step of a workflow: one `physai` command, or a gang of several."""

    command: Annotated[Command | None, BeforeValidator(_as_text)] = None
    """Words after `physai`. `${inputs.NAME}`, `${outputs.NAME}` and, in a gang, `${host.MEMBER}` are replaced."""
    members: Annotated[tuple[GangMember, ...], Field(max_length=16)] = ()
    stdout: Key | None = None
    """Output that receives what the command, or the lead, prints."""
    inputs: dict[Key, Input] = _MANY
    outputs: dict[Key, Annotated[Output, BeforeValidator(_as_output)]] = _MANY
    resources: Resources = Resources()
    image: Key | None = None
    """Image by its name in `images`."""
    retries: Annotated[int, Field(ge=0, le=10)] = 0
    """How many further attempts a failure gets."""
    exit_codes: Annotated[tuple[ExitCode, ...], Field(min_length=1, max_length=16)] = (0,)
    """Exit codes that are a success; some verbs end with 1 to answer no."""
    credentials: Annotated[tuple[Credential, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.command is None) == (not self.members):
            raise ValueError(
                f"a stage has either `command` or `members`, got {len(self.command or ())} words and "
                f"{len(self.members)} members"
            )
        return self

    @property
    def gang(self) -> tuple[GangMember, ...]:
        """The members; for a single command one that leads."""
        if self.command is None:
            return self.members
        return (GangMember(name="main", command=self.command, lead=True, resources=self.resources, image=self.image),)


class Workflow(_Record):
    """The stages of a workflow file by name."""

    format_version: Literal[1]
    name: WorkflowName
    images: dict[Key, Image] = _MANY
    stages: Annotated[dict[StageName, WorkflowStage], Field(min_length=1, max_length=MAX_ENTRIES)]

    def needs(self, stage: str) -> set[str]:
        """Stages whose outputs a stage reads."""
        return {origin[0] for given in self.stages[stage].inputs.values() if (origin := given.origin)}

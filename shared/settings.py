"""One tree of settings for all services: environment (`MATHRAG_...`), secret files, `mathrag.yaml`, defaults."""

import os
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from shared.device_settings import Device
from shared.errors import Unavailable
from shared.limits import Limits
from shared.model_settings import EXAMPLE_MODELS, Model
from shared.places import DATA_DIR, config_file
from shared.retrieval_settings import Retrieval, Secret

REPOSITORY = Path(__file__).resolve().parent.parent


def _shipped() -> dict[str, Model]:
    models = REPOSITORY / "models"
    return {
        "world-judge": Model(driver="process", path=models / "world-judge-f16.gguf", footprint_mib=96),
        "world-generator": Model(driver="process", path=models / "world-generator-f16.gguf", footprint_mib=96),
    }


class Workers(BaseModel):
    """How the workers of both lanes claim, compute and commit."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    chunk: int = Field(default=16, gt=0, le=256)
    """Calls claimed together; twice the slots of a small model server is enough. The retriever answers at most 256 at
    once."""
    streams: int = Field(default=2, gt=0)
    """Chunks in flight per worker, so that the backend never waits for a commit."""
    window_ms: int = Field(default=25, ge=0)
    """Replies that arrive within this time are committed together."""
    claim_ttl_s: float = Field(default=15.0, gt=0, le=600)
    """A claim lives so long without renewal; it is renewed three times in it."""
    outage_s: float = Field(default=3600.0, gt=0)
    """So long a call waits for a server that is away (a search engine, a model server, a device that cannot be loaded)
    before it fails as `unavailable` (docs/operations.md#a-server-is-away)."""
    tick_s: float = Field(default=60.0, gt=0)
    """Longest that a worker works on one tick; while Redis is away it goes on until its lease expires."""
    graders: int = Field(default=1, gt=0)
    """Processes that grade answers."""
    grade_deadline_s: float = Field(default=5.0, gt=0)
    """Longest grading of one answer, in seconds of the processor; ten times as many pass at most."""
    verifiers: int = Field(default=1, gt=0)
    """Processes that check documents' equations; they start when the first document comes."""
    verify_deadline_s: float = Field(default=20.0, gt=0)
    """Longest check of one document, in seconds of the processor; ten times as many pass at most."""
    miners: int = Field(default=2, gt=0, le=64)
    """Processes of each judge worker that mine rules, a relation each; they start when the first relation comes."""
    mining_mib: int = Field(default=4096, ge=256)
    """Memory that all of them may take together (MiB): each is bounded to its part of it. What might take more is
    refused (docs/rules.md#memory)."""
    mine_deadline_s: float = Field(default=3600.0, gt=0)
    """Longest mining of one relation, in seconds of the processor; ten times as many pass at most."""
    judges: int = Field(default=1, ge=0)
    """Worker processes of the judge lane that `mathrag up` starts; 0 where they run elsewhere."""
    generators: int = Field(default=1, ge=0)
    """Worker processes of the generate lane that `mathrag up` starts; 0 where they run elsewhere."""


class Telemetry(BaseModel):
    """Traces, metrics and logs (docs/telemetry.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    otlp_endpoint: str = Field(default="", examples=["http://collector:4318"])
    """Base URL of an OTLP/HTTP collector; empty: OTEL_EXPORTER_OTLP_ENDPOINT. Without either nothing is traced."""
    content: bool = False
    """Whether questions, prompts and answers may stand in spans: they are what users wrote."""
    metrics: bool = True
    """Whether the orchestrator answers `GET /metrics`."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto`: JSON in a container, text elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged."""
    log_mib: int = Field(default=16, gt=0)
    """A log file of `mathrag up` that is larger is rotated (docs/operations.md#what-grows); one older file is kept."""


class Retention(BaseModel):
    """What is deleted by itself (docs/operations.md#purge-and-retention)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    chat_hours: float = Field(default=24.0, ge=0)
    """Questions to `/v1/chat`, with their jobs and answers, are deleted so long after their end; 0: never."""


class Access(BaseModel):
    """Who may call the API (docs/security.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    keys: Literal["auto", "required", "off"] = "auto"
    """Whether API keys are asked for; `auto`: as soon as `host` is no loopback address."""
    hosts: tuple[str, ...] = ()
    """Further names of the API in `Host` headers, besides `host` and the loopback ones, whose pages may write, too:
    `rag.example.org`, with another port than 80 and 443 `rag.example.org:8443`. Any other is refused where keys are
    off."""


class Settings(BaseSettings):
    """Everything an operator may set."""

    model_config = SettingsConfigDict(
        env_prefix="MATHRAG_",
        env_nested_delimiter="__",
        extra="forbid",
        use_attribute_docstrings=True,  # they stand in the schema, the example and docs/operations.md
        # What is wrong may be a secret in the wrong place.
        hide_input_in_errors=True,
    )

    data_dir: Path = DATA_DIR
    """Where everything is kept."""
    database_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_app@db.example.org/mathrag"])
    """The database as the application's role; empty: `mathrag up` starts the embedded PostgreSQL. Passwords are better
    kept in files: MATHRAG_SECRETS_DIR."""
    owner_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_owner@db.example.org/mathrag"])
    """The same database as its owner, for migrations and `mathrag purge`; the services never see it."""
    redis_url: Secret = Field(default="", examples=["redis://redis.example.org:6379/0"])
    """A Redis of your own; empty: `mathrag up` starts the embedded one."""
    retriever_url: str = ""
    """Where the retriever listens: set by `mathrag up`; set it yourself where you start the services yourself."""
    guard_url: str = ""
    """Where the guard of the first device listens: set by `mathrag up`, as `retriever_url` is."""
    service_key: Secret = ""
    """Secret of all services; guard and retriever ask for it, and need it where they listen beyond loopback
    (docs/security.md)."""
    host: str = "127.0.0.1"
    """Where the API listens; beyond loopback it asks for API keys (docs/security.md): `mathrag key create`."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port of the API."""
    models: dict[str, Model] = Field(default_factory=_shipped, examples=[EXAMPLE_MODELS])
    """Models by name (docs/operations.md#add-a-model). They replace the shipped ones, so name those that you still
    want."""
    roles: dict[Literal["judge", "generate"], str] = {"judge": "world-judge", "generate": "world-generator"}
    """The model that answers a role when a job does not name one."""
    retrieval: Retrieval = Retrieval()
    device: Device = Device()
    """The device, or the first of several."""
    devices: tuple[Device, ...] = Field(default=(), examples=[({"id": "GPU-51d0", "budget_mib": 24000},)])
    """Further devices, each with the same keys as `device` and a guard of its own (docs/scaling.md#two-gpus)."""
    workers: Workers = Workers()
    access: Access = Access()
    retention: Retention = Retention()
    limits: Limits = Limits()
    telemetry: Telemetry = Telemetry()
    commit: str = ""
    """Git commit of the code, kept with every job; a clone finds it by itself."""
    image_digest: str = ""
    """Digest of the container image; kept with every job."""
    require_idempotency_key: bool = False
    """Whether a job without the header `Idempotency-Key` is refused (docs/api.md#idempotency)."""
    sweep_s: float = Field(default=5.0, gt=0)
    """Seconds between two sweeps, which repair what a crash has left."""
    patience_s: float = Field(default=30.0, gt=0)
    """How long CPU calls without progress may hold back a flip."""

    @model_validator(mode="after")
    def _set_aside(self) -> Self:
        """The first GPU is the one that FAISS uses; its memory is shared with the models from the start."""
        if self.retrieval.dense.gpu == "never":
            return self
        devices = [self.device, *self.devices]
        first = next((at for at, device in enumerate(devices) if not device.id.startswith("cpu")), None)
        if first is not None:
            devices[first] = devices[first].shared(self.retrieval.dense.gpu_mib)
            if devices[first].models_mib <= 0:
                raise ValueError("`retrieval.dense.gpu_mib` leaves no room for models in the device's `budget_mib`")
        self.device, self.devices = devices[0], tuple(devices[1:])
        return self

    @model_validator(mode="after")
    def _named(self) -> Self:
        ids = [device.id for device in self.all_devices()]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"`devices`: two devices are called {twice[0]!r}")
        for name, model in self.models.items():
            if model.device is not None and model.device not in ids:
                raise ValueError(f"`models.{name}.device`: no device {model.device!r}; there are {', '.join(ids)}")
        return self

    def all_devices(self) -> tuple[Device, ...]:
        """`device` and the further ones, each with the address of its guard as far as it is known."""
        first = self.device.model_copy(update={"guard_url": self.guard_url or self.device.guard_url})
        return first, *self.devices

    def guards(self) -> dict[str, Device]:
        """The devices by the names of their guards, as logs, readiness and metrics call them."""
        names = ("guard" if number == 1 else f"guard-{number}" for number in range(1, len(self.devices) + 2))
        return dict(zip(names, self.all_devices(), strict=True))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order: arguments, environment, secret files, YAML."""
        secrets = SecretsSettingsSource(settings_cls, secrets_dir=_secrets_dir())
        return init_settings, env_settings, secrets, YamlConfigSettingsSource(settings_cls, _readable_config())


def _secrets_dir() -> Path | None:
    given = os.environ.get("MATHRAG_SECRETS_DIR")
    if given and not Path(given).is_dir():
        raise Unavailable(f"MATHRAG_SECRETS_DIR: `{given}` is no folder", hint="mount it, or take the variable away")
    return Path(given) if given else None


def _readable_config() -> Path:
    """The file, once it is known that it holds keys and values, or is not there.

    Raises:
        yaml.YAMLError: it does not; the message names the file.
        OSError: it cannot be read.
    """
    file = config_file()
    if file.is_dir():
        raise yaml.YAMLError(f"`{file}` is a folder; MATHRAG_CONFIG names a file")
    try:
        content = yaml.safe_load(file.read_text("utf-8")) if file.exists() else None
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"`{file}` is no text in UTF-8") from error
    if content is not None and not isinstance(content, dict):
        raise yaml.YAMLError(f"`{file}` must hold keys and values")
    return file


def load() -> Settings:
    """The settings of this process, from its environment and its file."""
    return Settings()

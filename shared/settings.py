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
from shared.model_settings import Model
from shared.retrieval_settings import Retrieval, Secret

REPOSITORY = Path(__file__).resolve().parent.parent


def _shipped() -> dict[str, Model]:
    models = REPOSITORY / "models"
    return {
        "world-judge": Model(driver="process", path=models / "world-judge-f16.gguf", footprint_mib=96),
        "world-generator": Model(driver="process", path=models / "world-generator-f16.gguf", footprint_mib=96),
    }


class Workers(BaseModel):
    """How workers claim and commit."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    chunk: int = Field(default=16, gt=0, le=256)
    """Calls claimed together; twice the slots of a small backend is enough."""
    streams: int = Field(default=2, gt=0)
    """Chunks in flight per worker, so that the backend never waits for a commit."""
    window_ms: int = Field(default=25, ge=0)
    """Replies that arrive within this time are committed together."""
    claim_ttl_s: float = Field(default=15.0, gt=0, le=600)
    outage_s: float = Field(default=3600.0, gt=0)
    """So long a call waits for a server that is away (a search engine, a model server, a device that cannot be loaded)
    before it fails as `unavailable`."""
    tick_s: float = Field(default=60.0, gt=0)
    """Longest a tick works before it hands over to a fresh one."""
    graders: int = Field(default=1, gt=0)
    grade_deadline_s: float = Field(default=5.0, gt=0)
    verifiers: int = Field(default=1, gt=0)
    """Processes that check documents' equations; started when the first document comes."""
    verify_deadline_s: float = Field(default=20.0, gt=0)
    """Longest check of one document."""
    judges: int = Field(default=1, ge=0)
    """Worker processes of the judge lane that `mathrag up` starts; 0 where they run elsewhere."""
    generators: int = Field(default=1, ge=0)
    """The same of the generate lane."""


class Telemetry(BaseModel):
    """What processes say about themselves."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    otlp_endpoint: str = ""
    """Base URL of an OTLP/HTTP collector; empty: OTEL_EXPORTER_OTLP_ENDPOINT, and without that no traces."""
    content: bool = False
    """Whether questions, prompts and answers may stand in spans: they are what users wrote."""
    metrics: bool = True
    """Whether the orchestrator answers `GET /metrics`."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto`: JSON in a container, text elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_mib: int = Field(default=16, gt=0)
    """A log file of `mathrag up` that is larger is rotated; one older file of the same size is kept."""


class Retention(BaseModel):
    """What is deleted by itself."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    chat_hours: float = Field(default=24.0, ge=0)
    """Questions to `/v1/chat`, with their jobs and answers, are deleted so long after their end; 0: never."""


class Access(BaseModel):
    """Who may call the API."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    keys: Literal["auto", "required", "off"] = "auto"
    """`auto`: required as soon as `host` is no loopback address."""
    hosts: tuple[str, ...] = ()
    """Names besides `host` and the loopback ones under which the API is called, with a port where it is not the usual
    one and pages of it may write; others are refused without keys."""


class Settings(BaseSettings):
    """Everything an operator may set."""

    model_config = SettingsConfigDict(
        env_prefix="MATHRAG_",
        env_nested_delimiter="__",
        extra="forbid",
        use_attribute_docstrings=True,  # they stand in config-schema.json
        # What is wrong may be a secret in the wrong place.
        hide_input_in_errors=True,
    )

    data_dir: Path = Path(".mathrag")
    database_url: Secret = ""
    """postgresql+asyncpg://... of the application's role."""
    owner_url: Secret = ""
    """The same database as its owner, for migrations and purges."""
    redis_url: Secret = ""
    retriever_url: str = ""
    guard_url: str = ""
    service_key: Secret = ""
    """Shared by all services; guard and retriever ask for it, and need it where they listen beyond loopback."""
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    models: dict[str, Model] = Field(default_factory=_shipped)
    roles: dict[Literal["judge", "generate"], str] = {"judge": "world-judge", "generate": "world-generator"}
    """The model that answers a role when a job does not name one."""
    retrieval: Retrieval = Retrieval()
    device: Device = Device()
    devices: tuple[Device, ...] = ()
    """Further devices, each with a guard of its own."""
    workers: Workers = Workers()
    access: Access = Access()
    retention: Retention = Retention()
    limits: Limits = Limits()
    telemetry: Telemetry = Telemetry()
    commit: str = ""
    """Git commit of the code where it runs outside a clone; kept with every job."""
    image_digest: str = ""
    """Digest of the container image; kept with every job."""
    require_idempotency_key: bool = False
    """Whether a job without the header Idempotency-Key is refused."""
    sweep_s: float = Field(default=5.0, gt=0)
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


def config_file() -> Path:
    """Where settings are read from: `MATHRAG_CONFIG`, by default `mathrag.yaml` in the working directory."""
    return Path(os.environ.get("MATHRAG_CONFIG", "mathrag.yaml"))


def load() -> Settings:
    """The settings of this process, from its environment and its file."""
    return Settings()

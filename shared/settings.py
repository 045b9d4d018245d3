"""The settings of all services, from the environment (`MATHRAG_...`), secret files, `mathrag.yaml` and defaults."""

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


def _make_shipped_models() -> dict[str, Model]:
    models = REPOSITORY / "models"
    return {
        "world-judge": Model(driver="process", path=models / "world-judge-f16.gguf", footprint_mib=96),
        "world-generator": Model(driver="process", path=models / "world-generator-f16.gguf", footprint_mib=96),
    }


class Workers(BaseModel):
    """How the workers of both lanes claim, compute and commit calls."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    chunk: int = Field(default=16, gt=0, le=256)
    """Number of calls that are claimed together; twice the slots of a small model server is enough. The retriever
    answers at most 256 at once."""
    streams: int = Field(default=2, gt=0)
    """Number of chunks in flight per worker, so that the back end never waits for a commit."""
    window_ms: int = Field(default=25, ge=0)
    """Time in milliseconds within which arriving replies are committed together."""
    claim_ttl_s: float = Field(default=15.0, gt=0, le=600)
    """Lifetime of a claim without renewal, in seconds; a worker renews it three times in that time."""
    outage_s: float = Field(default=3600.0, gt=0)
    """How long a call waits for a server that is away (a search engine, a model server, a device that cannot be
    loaded), in seconds; then it fails as `unavailable` (docs/how-to/operations.md#a-server-is-away)."""
    tick_s: float = Field(default=60.0, gt=0)
    """Maximum time that a worker works on one tick, in seconds; without Redis it continues until its lease expires."""
    graders: int = Field(default=1, gt=0)
    """Number of processes that grade answers."""
    grade_deadline_s: float = Field(default=5.0, gt=0)
    """Maximum CPU time to grade one answer, in seconds; at most ten times that in real time."""
    verifiers: int = Field(default=1, gt=0)
    """Number of processes that check equations of documents; they start with the first document."""
    verify_deadline_s: float = Field(default=20.0, gt=0)
    """Maximum CPU time to check one document, in seconds; at most ten times that in real time."""
    miners: int = Field(default=2, gt=0, le=64)
    """Number of processes of each judge worker that mine rules, one relation each; they start with the first
    relation."""
    mining_mib: int = Field(default=4096, ge=256)
    """Memory of all these processes together, in MiB; each may use an equal part. Mining that could need more is
    refused (docs/how-to/rules.md#memory)."""
    mine_deadline_s: float = Field(default=3600.0, gt=0)
    """Maximum CPU time to mine one relation, in seconds; at most ten times that in real time."""
    judges: int = Field(default=1, ge=0)
    """Number of judge workers that `mathrag up` starts; 0 if they run elsewhere."""
    generators: int = Field(default=1, ge=0)
    """Number of generate workers that `mathrag up` starts; 0 if they run elsewhere."""


class Telemetry(BaseModel):
    """Traces, metrics and logs (docs/how-to/telemetry.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    otlp_endpoint: str = Field(default="", examples=["http://collector:4318"])
    """Base URL of an OTLP/HTTP collector; empty: OTEL_EXPORTER_OTLP_ENDPOINT. If neither is set, nothing is traced."""
    content: bool = False
    """Whether spans may hold questions, prompts and answers, which are users' texts."""
    metrics: bool = True
    """Whether the orchestrator answers `GET /metrics`."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto`: `json` in a container, and `text` elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of logged messages."""
    log_mib: int = Field(default=16, gt=0)
    """Size from which a log file of `mathrag up` is rotated, in MiB (docs/how-to/operations.md#what-grows); one older
    file is kept."""


class Retention(BaseModel):
    """Automatic deletion (docs/how-to/operations.md#purge-and-retention)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    chat_hours: float = Field(default=24.0, ge=0)
    """How long questions to `/v1/chat` are kept after their end, with their jobs and answers, in hours; 0: for ever."""


class Access(BaseModel):
    """Who may call the API (docs/how-to/security.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    keys: Literal["auto", "required", "off"] = "auto"
    """Whether requests need an API key; `auto`: if `host` is not a loopback address."""
    hosts: tuple[str, ...] = ()
    """Further host names of the API, besides `host` and the loopback names, whose pages may also write:
    `rag.example.org`, or `rag.example.org:8443` for a port other than 80 and 443. Without keys, any other name is
    refused."""


class Plugins(BaseModel):
    """Plug-ins (docs/how-to/plugins.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    import_s: float = Field(default=30.0, gt=0, le=600)
    """Maximum time to import a plug-in, in seconds. It is tried in its own process, and left out if it takes longer."""
    templates: Path | None = None
    """Folder of prompts, each in a file NAME.toml (docs/how-to/plugins.md#prompts-and-rubrics)."""
    rubrics: Path | None = None
    """Folder of rubrics, each in a text file NAME.txt, which a job names with `grading.rubric=@NAME`."""


class Settings(BaseSettings):
    """All settings of the operator."""

    model_config = SettingsConfigDict(
        env_prefix="MATHRAG_",
        env_nested_delimiter="__",
        extra="forbid",
        use_attribute_docstrings=True,  # they stand in the schema, the example and docs/reference/settings.md
        # What is wrong may be a secret in the wrong place.
        hide_input_in_errors=True,
    )

    data_dir: Path = DATA_DIR
    """Folder of all data."""
    database_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_app@db.example.org/mathrag"])
    """URL of the database, with the application's role; empty: `mathrag up` starts the embedded PostgreSQL. Passwords
    are safer in files (MATHRAG_SECRETS_DIR)."""
    owner_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_owner@db.example.org/mathrag"])
    """URL of the same database with its owner's role, for migrations and `mathrag purge`; services do not read it."""
    redis_url: Secret = Field(default="", examples=["redis://redis.example.org:6379/0"])
    """URL of your own Redis; empty: `mathrag up` starts the embedded one."""
    retriever_url: str = ""
    """Address of the retriever; `mathrag up` sets it, so set it only if you start the services yourself."""
    guard_url: str = ""
    """Address of the first device's guard; `mathrag up` sets it, as it sets `retriever_url`."""
    service_key: Secret = ""
    """Secret that all services share. Guard and retriever require it, and do not start without it beyond loopback
    (docs/how-to/security.md)."""
    host: str = "127.0.0.1"
    """Address on which the API listens; beyond loopback it requires API keys (docs/how-to/security.md; `mathrag key
    create`)."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port of the API."""
    models: dict[str, Model] = Field(default_factory=_make_shipped_models, examples=[EXAMPLE_MODELS])
    """Models by name (docs/how-to/operations.md#add-a-model). They replace the shipped ones, so repeat those that you
    want to keep."""
    roles: dict[Literal["judge", "generate"], str] = {"judge": "world-judge", "generate": "world-generator"}
    """Model of each role, for jobs that do not name one."""
    retrieval: Retrieval = Retrieval()
    device: Device = Device()
    """The device, or the first of several."""
    devices: tuple[Device, ...] = Field(default=(), examples=[({"id": "GPU-51d0", "budget_mib": 24000},)])
    """Further devices, each with the same keys as `device` and a guard of its own (docs/how-to/scaling.md#two-gpus)."""
    workers: Workers = Workers()
    access: Access = Access()
    retention: Retention = Retention()
    limits: Limits = Limits()
    plugins: Plugins = Plugins()
    telemetry: Telemetry = Telemetry()
    commit: str = ""
    """Git commit of the code, stored with every job; a clone finds it itself."""
    image_digest: str = ""
    """Digest of the container image, stored with every job."""
    require_idempotency_key: bool = False
    """Whether jobs without the header `Idempotency-Key` are refused (docs/how-to/api.md#idempotency)."""
    sweep_s: float = Field(default=5.0, gt=0)
    """Time between two sweeps, which repair what a crash has left, in seconds."""
    patience_s: float = Field(default=30.0, gt=0)
    """How long CPU calls without progress may delay a flip, in seconds."""

    @model_validator(mode="after")
    def _reserve_vector_memory(self) -> Self:
        """Reserve the vectors' memory on the first GPU, which is the one that FAISS uses, before models get theirs."""
        if self.retrieval.dense.gpu == "never":
            return self
        devices = [self.device, *self.devices]
        first = next((at for at, device in enumerate(devices) if not device.id.startswith("cpu")), None)
        if first is not None:
            devices[first] = devices[first].with_reserved(self.retrieval.dense.gpu_mib)
            if devices[first].models_mib <= 0:
                raise ValueError("`retrieval.dense.gpu_mib` leaves no memory for models in the device's `budget_mib`")
        self.device, self.devices = devices[0], tuple(devices[1:])
        return self

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        ids = [device.id for device in self.all_devices()]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"`devices`: two devices have the id {twice[0]!r}; rename one")
        for name, model in self.models.items():
            if model.device is not None and model.device not in ids:
                raise ValueError(f"`models.{name}.device`: no device {model.device!r}; there are {', '.join(ids)}")
        return self

    def all_devices(self) -> tuple[Device, ...]:
        """Return `device` and the further ones, each with the address of its guard if that is known."""
        first = self.device.model_copy(update={"guard_url": self.guard_url or self.device.guard_url})
        return first, *self.devices

    def guards(self) -> dict[str, Device]:
        """Return the devices by the names of their guards in logs, readiness and metrics."""
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
        """Order the sources by precedence: arguments, environment, secret files, YAML."""
        secrets = SecretsSettingsSource(settings_cls, secrets_dir=_secrets_dir())
        return init_settings, env_settings, secrets, YamlConfigSettingsSource(settings_cls, _check_config_file())


def _secrets_dir() -> Path | None:
    given = os.environ.get("MATHRAG_SECRETS_DIR")
    if given and not Path(given).is_dir():
        raise Unavailable(f"MATHRAG_SECRETS_DIR: `{given}` is not a folder", hint="mount it, or unset the variable")
    return Path(given) if given else None


def _check_config_file() -> Path:
    """Return the path of the YAML file, after checking that it holds keys and values, or does not exist.

    Raises:
        yaml.YAMLError: it does not; the message names the file.
        OSError: it cannot be read.
    """
    file = config_file()
    if file.is_dir():
        raise yaml.YAMLError(f"`{file}` is a folder; MATHRAG_CONFIG must name a file")
    try:
        content = yaml.safe_load(file.read_text("utf-8")) if file.exists() else None
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"`{file}` is not UTF-8; save it as UTF-8") from error
    if content is not None and not isinstance(content, dict):
        raise yaml.YAMLError(f"`{file}` must be a mapping of keys to values")
    return file


def load() -> Settings:
    """Load the settings of this process, from its environment and its file."""
    return Settings()

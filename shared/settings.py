"""One tree of settings for all services: environment (`MATHRAG_...`), secret files, `mathrag.yaml`, defaults."""

import os
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from shared.errors import Unavailable
from shared.limits import Limits
from shared.places import DATA_DIR, config_file
from shared.retrieval import Retrieval, Secret, Url

REPOSITORY = Path(__file__).resolve().parent.parent


class TokenPrice(BaseModel):
    """What a provider charges for a model, in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    prompt: float = Field(ge=0, allow_inf_nan=False)
    """Of what the model reads."""
    completion: float = Field(ge=0, allow_inf_nan=False)
    """Of what it writes."""

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """What so many tokens cost, in US dollars."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1_000_000


VLLM_LOAD_S = 600.0


class Model(BaseModel):
    """A model that jobs may ask for by name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    driver: Literal["process", "vllm-sleep", "ollama", "remote", "scripted"]
    server: Literal["embedded", "llama.cpp", "tgi", "vllm"] = "embedded"
    """`process`: the program that serves it; `embedded`: llama.cpp, as it comes with this package."""
    command: tuple[str, ...] = ()
    """`process`, `vllm-sleep`: the program and further arguments; by default the program by its usual name."""
    path: Path | None = None
    """`process`, `vllm-sleep`: the GGUF file; for TGI and vLLM a folder of config and safetensors."""
    hub: str | None = None
    """TGI and vLLM: name on the Hugging Face hub, where there is no `path`."""
    revision: str | None = Field(default=None, pattern="^[0-9a-f]{40}$")
    """Commit of the hub's repository; without it the model is not pinned, and replies are reused inside a job only."""
    url: Url | None = None
    """`remote`: base URL of an OpenAI-compatible or TGI server; `ollama`: of the server, by default on this machine."""
    tag: str | None = None
    """`ollama`: the model as it was pulled; by default the name under `models`."""
    api_key_env: str | None = None
    """`remote`: name of the environment variable that holds the key; the key itself is never stored."""
    context: int = Field(default=1024, gt=0)
    """Tokens per slot."""
    parallel: int = Field(default=8, gt=0)
    """Calls that the server answers at once; 1 with `deterministic` on llama.cpp."""
    threads: int = Field(default=1, gt=0)
    """`process`: threads of the server; one is fastest for very small models."""
    footprint_mib: int = Field(default=0, ge=0)
    """Declared memory, held against the device's budget; 0: estimated from the model's metadata, where it has any."""
    asleep_mib: int = Field(default=0, ge=0)
    """`vllm-sleep`: memory of the host that its weights take while it sleeps; where that is not free it is stopped."""
    call_timeout_s: float = Field(default=120.0, gt=0)
    """Longest answer to one prompt; what takes longer is broken off and tried again."""
    deterministic: bool = False
    """Whether a prompt gets the same reply whatever runs beside it, also after a kill. llama.cpp then has one slot and
    no prompt cache, vLLM batch-invariant kernels; other servers cannot promise it and are refused."""
    device: str | None = None
    """Id of the device that it runs on; by default the stages are kept apart where there are several."""
    price: TokenPrice | None = None
    """For the cost in reports; it decides nothing. Without it the cost of the model's calls is unknown."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.server != "embedded" and self.driver != "process":
            raise ValueError(f"`server` belongs to driver `process`, not `{self.driver}`; take it away")
        if self.command and self.driver != "vllm-sleep" and self.server == "embedded":
            raise ValueError("`command` needs a `server` that it starts: llama.cpp, tgi or vllm")
        if self.hub is not None and self.driver != "vllm-sleep" and self.server not in ("tgi", "vllm"):
            raise ValueError("`hub` is for TGI and vLLM; give the file as `path`")
        if self.hub is not None and self.path is not None:
            raise ValueError("`hub` and `path` name two models; take one away")
        if self.revision is not None and self.hub is None:
            raise ValueError("`revision` is a commit of `hub`; files in `path` are known by their bytes")
        return self

    @model_validator(mode="after")
    def _repeatable(self) -> Self:
        if not self.deterministic:
            return self
        kind = self.server if self.driver == "process" else self.driver
        if kind in ("tgi", "ollama", "remote"):
            said = f"`deterministic` cannot be promised for {kind}: its replies depend on what else it computes"
            raise ValueError(f"{said}; take it away, or serve the model by llama.cpp or vLLM")
        if kind in ("embedded", "llama.cpp"):
            if "parallel" in self.model_fields_set and self.parallel > 1:
                raise ValueError(f"`deterministic` needs one slot on llama.cpp; take `parallel: {self.parallel}` away")
            self.parallel = 1
        return self


def _shipped() -> dict[str, Model]:
    models = REPOSITORY / "models"
    return {
        "world-judge": Model(driver="process", path=models / "world-judge-f16.gguf", footprint_mib=96),
        "world-generator": Model(driver="process", path=models / "world-generator-f16.gguf", footprint_mib=96),
    }


class Device(BaseModel):
    """The device that one guard owns."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    id: str = "cpu:0"
    residency: Literal["staged", "together", "auto"] = "staged"
    """`staged`: one model at a time; `together`: several that fit; `auto`: what the planner finds cheapest."""
    budget_mib: int = 160
    """Sum of declared footprints that may be resident; 160 refuses the two shipped models together."""
    memory: Literal["measured", "declared"] | None = None
    """`measured`: NVML testifies, and without it nothing is loaded; `declared`: the figures above are all there is.
    By default a GPU that is named by its UUID is measured."""
    reserve_mib: int = Field(default=256, ge=0)
    """What must stay free beside the models that are loaded, on a measured device."""
    free_timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for unloaded memory to be free; then what can be killed is killed, and it is waited once more."""
    load_timeout_s: float = 120.0
    """Longest start of a model server; where it is not set, vLLM has 600 s: it took up to 215 s on a processor."""
    drain_timeout_s: float = 30.0
    max_wait_s: float = Field(default=900.0, ge=0)
    """A job that can go on only with another model than the resident ones waits so long for them; 0: to their end."""
    max_residency_s: float = Field(default=1800.0, ge=0)
    """A residency that was open for so long gives way to such a job at once; 0: never."""
    online_patience_s: float = Field(default=10.0, ge=0)
    """A question to `/v1/chat` waits so long for a model that is not resident before it is loaded for it."""
    guard_url: str = ""
    """Of its guard, where `mathrag up` does not start it; of the first device the setting `guard_url`."""
    _vectors_mib: int = PrivateAttr(default=0)

    @property
    def models_mib(self) -> int:
        """What models may take: the budget, less what vectors have of it (`retrieval.dense.gpu_mib`)."""
        return self.budget_mib - self._vectors_mib

    def load_timeout_of(self, model: Model) -> float:
        """Longest start of the model's server, in seconds."""
        slow = model.driver == "vllm-sleep" or model.server == "vllm"
        return VLLM_LOAD_S if slow and "load_timeout_s" not in self.model_fields_set else self.load_timeout_s

    def shared(self, vectors_mib: int) -> "Device":
        """The same device with so much of its budget set aside for vectors."""
        copy = self.model_copy()
        copy._vectors_mib = vectors_mib
        return copy

    @property
    def measured(self) -> bool:
        """Whether its memory is measured."""
        return self.memory == "measured" or (self.memory is None and self.id.startswith(("GPU-", "MIG-")))


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

    data_dir: Path = DATA_DIR
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


def load() -> Settings:
    """The settings of this process, from its environment and its file."""
    return Settings()

"""One tree of settings for all services: environment (`MATHRAG_...`) over `mathrag.yaml` over the defaults."""

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

REPOSITORY = Path(__file__).resolve().parent.parent


class Model(BaseModel):
    """A model that jobs may ask for by name."""

    model_config = ConfigDict(extra="forbid")

    driver: Literal["process", "remote", "scripted"]
    path: Path | None = None
    """`process`: the GGUF file."""
    url: str | None = None
    """`remote`: base URL of an OpenAI-compatible or TGI server, from the operator only."""
    api_key_env: str | None = None
    """`remote`: name of the environment variable that holds the key; the key itself is never stored."""
    context: int = Field(default=1024, gt=0)
    """Tokens per slot."""
    parallel: int = Field(default=8, gt=0)
    """Calls that the server answers at once."""
    threads: int = Field(default=1, gt=0)
    """`process`: threads of the server; one is fastest for very small models."""
    footprint_mib: int = Field(default=0, ge=0)
    """Declared memory, held against the device's budget."""


def _shipped() -> dict[str, Model]:
    models = REPOSITORY / "models"
    return {
        "world-judge": Model(driver="process", path=models / "world-judge-f16.gguf", footprint_mib=96),
        "world-generator": Model(driver="process", path=models / "world-generator-f16.gguf", footprint_mib=96),
    }


class Device(BaseModel):
    """The device that one guard owns."""

    model_config = ConfigDict(extra="forbid")

    id: str = "cpu:0"
    residency: Literal["staged", "together"] = "staged"
    budget_mib: int = 160
    """Sum of declared footprints that may be resident; 160 refuses the two shipped models together."""
    load_timeout_s: float = 120.0
    drain_timeout_s: float = 30.0


class Workers(BaseModel):
    """How workers claim and commit."""

    model_config = ConfigDict(extra="forbid")

    chunk: int = Field(default=16, gt=0, le=256)
    """Calls claimed together; twice the slots of a small backend is enough."""
    streams: int = Field(default=2, gt=0)
    """Chunks in flight per worker, so that the backend never waits for a commit."""
    window_ms: int = Field(default=25, ge=0)
    """Replies that arrive within this time are committed together."""
    claim_ttl_s: float = Field(default=15.0, gt=0)
    tick_s: float = Field(default=60.0, gt=0)
    """Longest a tick works before it hands over to a fresh one."""
    graders: int = Field(default=1, gt=0)
    grade_deadline_s: float = Field(default=5.0, gt=0)


class Settings(BaseSettings):
    """Everything an operator may set."""

    model_config = SettingsConfigDict(
        env_prefix="MATHRAG_", env_nested_delimiter="__", extra="forbid", yaml_file="mathrag.yaml"
    )

    data_dir: Path = Path(".mathrag")
    database_url: str = ""
    """postgresql+asyncpg://... of the application's role."""
    owner_url: str = ""
    """The same database as its owner, for migrations and purges."""
    redis_url: str = ""
    retriever_url: str = ""
    guard_url: str = ""
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    models: dict[str, Model] = Field(default_factory=_shipped)
    roles: dict[Literal["judge", "generate"], str] = {"judge": "world-judge", "generate": "world-generator"}
    """The model that answers a role when a job does not name one."""
    embeddings: Path = REPOSITORY / "models" / "static-embeddings"
    device: Device = Device()
    workers: Workers = Workers()
    sweep_s: float = Field(default=5.0, gt=0)
    patience_s: float = Field(default=30.0, gt=0)
    """How long CPU calls without progress may hold back a flip."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order: arguments, environment, YAML."""
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def load() -> Settings:
    """The settings of this process, from `MATHRAG_CONFIG` (default `mathrag.yaml`) and the environment."""
    Settings.model_config["yaml_file"] = os.environ.get("MATHRAG_CONFIG", "mathrag.yaml")
    return Settings()

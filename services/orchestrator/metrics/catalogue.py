"""Lists every metric with its meaning and labels. Tests compare the code, the documentation and the dashboard with
it.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric; durations are in seconds, memory in bytes."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE = (
    Metric("mathrag_jobs", "gauge", "Live jobs by state.", ("state",)),
    Metric("mathrag_jobs_ended_total", "counter", "Jobs that ended, by outcome.", ("state",)),
    Metric("mathrag_samples_ended_total", "counter", "Samples that ended, by outcome.", ("state", "failure")),
    Metric("mathrag_steps_total", "counter", "Steps of ended samples: computed for them, or reused.", ("source",)),
    Metric(
        "mathrag_queue_calls", "gauge", "Calls in the queue; at most 20000 are counted per lane and model.",
        ("lane", "model", "state"),
    ),
    Metric("mathrag_outage_seconds", "gauge", "Duration of the outage that calls of a model wait for.", ("model",)),
    Metric("mathrag_call_duration_seconds", "histogram", "Execution of a call that was answered.", ("lane", "role")),
    Metric("mathrag_attempts_total", "counter", "Executions of calls, by outcome.", ("lane", "role", "outcome")),
    Metric("mathrag_tokens_total", "counter", "Tokens that models read and wrote.", ("role", "direction")),
    Metric("mathrag_gate_decisions_total", "counter", "Decisions of the confidence gate.", ("strategy",)),
    Metric("mathrag_extractions_total", "counter", "Samples by whether their answer was found.", ("extraction",)),
    Metric("mathrag_decisions_total", "counter", "Decisions of methods for samples.", ("stage", "action")),
    Metric("mathrag_fallbacks_total", "counter", "Parts of methods that were left out, by reason.", ("stage", "kind")),
    Metric("mathrag_question_vectors_total", "counter", "Vectors of questions, by source.", ("source",)),
    Metric("mathrag_device_state", "gauge", "1 for the state of the device's newest residency.", ("device", "state")),
    Metric("mathrag_device_epoch", "gauge", "Epoch of the device's newest residency.", ("device",)),
    Metric("mathrag_device_budget_bytes", "gauge", "Sum of footprints that may be resident.", ("device",)),
    Metric("mathrag_resident_model_memory_bytes", "gauge", "Measured memory of a resident model.", ("device", "model")),
    Metric("mathrag_flips_total", "counter", "Flips that opened or failed, by cause.", ("device", "cause", "outcome")),
    Metric("mathrag_model_loads_total", "counter", "Model servers that were started.", ("device", "model")),
    Metric("mathrag_model_load_seconds_total", "counter", "Time that their starts took.", ("device", "model")),
    Metric("mathrag_workers", "gauge", "Workers with a heartbeat.", ("lane",)),
    Metric("mathrag_service_up", "gauge", "1 if the service answers.", ("service",)),
    Metric("mathrag_database_connections", "gauge", "Connections of the API's pool.", ("state",)),
    Metric("mathrag_database_bytes", "gauge", "Size of the database."),
    Metric("mathrag_disk_free_bytes", "gauge", "Free space on the disk of the data folder."),
    Metric("mathrag_memory_available_bytes", "gauge", "Memory of the API's host that programs can still use."),
    Metric("mathrag_http_requests_total", "counter", "Requests to the API.", ("method", "route", "status")),
    Metric(
        "mathrag_http_request_duration_seconds", "histogram", "Time until a response begins.", ("method", "route"),
    ),
    Metric("mathrag_metrics_duration_seconds", "gauge", "Time that it took to derive these metrics."),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in CATALOGUE}

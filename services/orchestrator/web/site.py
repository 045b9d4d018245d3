"""Adds all pages to the application."""

from fastapi import FastAPI

from services.orchestrator.web import (
    assets,
    audit,
    cases,
    changed_samples,
    compare,
    configuration,
    corpora,
    datasets,
    doctor,
    errors,
    experiments,
    job,
    jobs,
    keys,
    labels,
    models,
    now,
    pipelines,
    plan,
    price,
    report,
    rules,
    sample,
    samples,
    search,
    sign_in,
    submit,
)

PARTS = (
    assets,
    audit,
    cases,
    changed_samples,
    compare,
    configuration,
    corpora,
    datasets,
    doctor,
    experiments,
    job,
    jobs,
    keys,
    labels,
    models,
    now,
    pipelines,
    plan,
    price,
    report,
    rules,
    sample,
    samples,
    search,
    sign_in,
    submit,
)


def install(app: FastAPI) -> None:
    """Add every page to `app`, and draw errors as pages for clients that request HTML."""
    for part in PARTS:
        app.include_router(part.router)
    errors.install(app)

"""`/pipelines`: the ways to an answer, and their parameters."""

from fastapi import APIRouter

router = APIRouter()

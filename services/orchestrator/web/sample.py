"""`/jobs/{job}/samples/{index}`: one question, and all that led to its answer."""

from fastapi import APIRouter

router = APIRouter()

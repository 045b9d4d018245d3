"""`/jobs/{job}/samples`: what became of each question."""

from fastapi import APIRouter

router = APIRouter()

"""`/compare`: several jobs, or an experiment, side by side."""

from fastapi import APIRouter

router = APIRouter()

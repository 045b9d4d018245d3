"""`/jobs/{job}`: one job, live: how far it is, how well it does, what was decided."""

from fastapi import APIRouter

router = APIRouter()

"""`/`: what each device holds and does now, and what comes next."""

from fastapi import APIRouter

router = APIRouter()

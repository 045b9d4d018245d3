"""`/doctor`: what works, and what to do about what does not."""

from fastapi import APIRouter

router = APIRouter()

"""`/corpora`: what is searched."""

from fastapi import APIRouter

router = APIRouter()

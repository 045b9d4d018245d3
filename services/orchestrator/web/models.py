"""`/models`: which models answer, and what they hold."""

from fastapi import APIRouter

router = APIRouter()

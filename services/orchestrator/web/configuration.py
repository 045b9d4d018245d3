"""`/configuration`: parameters that jobs get which do not name them; what they were before."""

from fastapi import APIRouter

router = APIRouter()

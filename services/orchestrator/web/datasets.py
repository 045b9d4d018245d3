"""`/datasets`: what is asked."""

from fastapi import APIRouter

router = APIRouter()

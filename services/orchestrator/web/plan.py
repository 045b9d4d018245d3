"""`/plan`: loads and minutes before anything is submitted."""

from fastapi import APIRouter

router = APIRouter()

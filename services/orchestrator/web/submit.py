"""`/submit`: a job by a form."""

from fastapi import APIRouter

router = APIRouter()

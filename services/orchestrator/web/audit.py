"""`/jobs/{job}/audit`: whether what is stored can be believed."""

from fastapi import APIRouter

router = APIRouter()

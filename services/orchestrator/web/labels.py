"""`/labels`: people judge documents and answers without seeing what the system said."""

from fastapi import APIRouter

router = APIRouter()

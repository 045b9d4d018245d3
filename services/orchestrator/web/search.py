"""`/search`: why a document is found: ranks, scores, fusion."""

from fastapi import APIRouter

router = APIRouter()

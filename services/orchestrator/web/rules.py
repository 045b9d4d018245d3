"""`/rules`: graphs, and banks of rules that were mined from them."""

from fastapi import APIRouter

router = APIRouter()

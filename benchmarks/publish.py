"""stub"""
import json
from pathlib import Path
ROOT = Path(__file__).resolve().parent.parent
def as_json(figures): return json.dumps(figures, indent=1)
def write(*_): return []

"""SwiGLU."""

from cs336_kit.engine.room import Room

ROOM = Room(examinations={})

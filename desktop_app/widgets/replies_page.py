"""The page of the settings about replies: presets, the system prompt, sampling, and chats that are too long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QSignalBlocker
from PySide6.QtWidgets import QPlainTextEdit

from pilotfish.desktop_app import setting_fields as fields
from pilotfish.desktop_app.overflow import POLICIES
from pilotfish.desktop_app.settings import Settings
from pilotfish.desktop_app.widgets.forms import SPACE, ChoiceBox
from pilotfish.desktop_app.widgets.preset_row import PresetRow
from pilotfish.desktop_app.widgets.settings_page import SettingsPage


class RepliesPage(SettingsPage):
    """Presets, the system prompt and sampling."""

    def __init__(self, settings: Callable[[], Settings], apply: Callable[[Settings], None]) -> None:
        super().__init__(settings, apply)
        self.presets = PresetRow(settings, self._take_preset)
        self.prompt = QPlainTextEdit()
        self.prompt.setTabChangesFocus(True)
        self.prompt.setFixedHeight(12 * SPACE)
        self.prompt.setPlaceholderText(self.tr("Such as: answer briefly, in the language of the question"))
        self.prompt.textChanged.connect(
            lambda: self._apply(replace(self._settings(), system_prompt=self.prompt.toPlainText()))
        )
        self.form.add(self.tr("Preset"), self.presets, self.tr("A system prompt and sampling under a name"))
        self.form.add(self.tr("System prompt"), self.prompt, self.tr("What the model is told first in new chats"))
        self._add_sampling()
        policies = {"drop": self.tr("Leave the oldest turns out"), "stop": self.tr("Refuse to send, and say so")}
        self.overflow = ChoiceBox((policy, policies[policy]) for policy in POLICIES)
        self.overflow.chosen.connect(lambda key: self._apply_reply(overflow=key))
        self.form.add(
            self.tr("If a chat is too long"), self.overflow, self.tr("Nothing is deleted from the chat either way")
        )
        self.add_number(fields.ROOM, self.tr("Room for the reply"), self.tr("Tokens that are kept free in the context"))
        self.finish()

    def _add_sampling(self) -> None:
        for field, label, hint in (
            (fields.TEMPERATURE, self.tr("Temperature"), self.tr("0 takes the likeliest token each time")),
            (fields.TOP_K, self.tr("Top-k"), self.tr("Draw from so many of the likeliest tokens; 0 is off")),
            (fields.TOP_P, self.tr("Top-p"), self.tr("Draw from the likeliest tokens with this share; 1 is off")),
            (fields.MIN_P, self.tr("Min-p"), self.tr("Drop tokens below this share of the likeliest; 0 is off")),
            (
                fields.REPETITION_PENALTY,
                self.tr("Repetition penalty"),
                self.tr("Above 1: words that came before are less likely"),
            ),
        ):
            self.add_number(field, label, hint)
        self.add_number(
            fields.SEED, self.tr("Seed"), self.tr("The same seed gives the same reply"), self.tr("a fresh one")
        )
        self.add_number(
            fields.MAX_TOKENS, self.tr("Longest reply"),
            self.tr("In tokens; up to the end of the context if empty"), self.tr("no limit"),
        )  # fmt: skip

    def show_settings(self, settings: Settings) -> None:
        """Also the preset in use, the prompt and the policy."""
        super().show_settings(settings)
        self.presets.show_settings(settings)
        self.overflow.select(settings.reply.overflow)
        if self.prompt.toPlainText() != settings.system_prompt:
            with QSignalBlocker(self.prompt):
                self.prompt.setPlainText(settings.system_prompt)

    def _take_preset(self, settings: Settings) -> None:
        self.show_settings(settings)
        self._apply(settings)

    def _apply_reply(self, **values: str) -> None:
        settings = self._settings()
        self._apply(replace(settings, reply=replace(settings.reply, **values)))  # type: ignore[arg-type]

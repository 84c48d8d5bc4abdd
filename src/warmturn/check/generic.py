"""A template of our own, for logs whose model's template is not at hand.

Like ChatML. It prints what every template prints: tools, roles, content and tool calls. What
only some print, reasoning and the ids of calls, it leaves out, so that nothing is blamed which
the real template may never show.
"""

from warmturn.render import ChatTemplate

__all__ = ["GENERIC_SOURCE", "generic_template"]

GENERIC_SOURCE = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content or [] %}
{{- part.text if part.type == 'text' else part | tojson }}
{%- endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def generic_template() -> ChatTemplate:
    """Return the template, compiled."""
    return ChatTemplate(GENERIC_SOURCE, special_tokens={})

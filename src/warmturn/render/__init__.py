"""Messages to prompt text to token ids, exactly as Hugging Face renders, incrementally."""

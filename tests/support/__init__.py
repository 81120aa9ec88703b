"""What tests share: servers, a proxy that misbehaves."""

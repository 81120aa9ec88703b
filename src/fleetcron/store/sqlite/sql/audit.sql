-- Who changed what.
INSERT INTO audit (at, who, what, subject) VALUES (?1, ?2, ?3, ?4)

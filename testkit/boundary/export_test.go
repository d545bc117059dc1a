package boundary

// Matches is for the test of the patterns.
func Matches(pattern, path string) bool { return matches([]string{pattern}, path) }

// IsAllowed is for the test of the patterns.
func (c Config) IsAllowed(path string) bool { return c.rules().isAllowed(path) }

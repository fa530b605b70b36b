package producer

// Bounds of Waits.
const (
	MaxWatches = maxWatches
	MaxPolls   = maxPolls
)

// Rooms returns the number of connections with a Wait.
func Rooms() int {
	rooms.Lock()
	defer rooms.Unlock()
	return len(rooms.of)
}

// Package flood holds what one tenant's flood does to another: nothing that turns and quotas do not allow.
package flood

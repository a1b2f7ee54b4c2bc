<?php
// Pops jobs as a worker of Laravel does and prints what it sees, a line of JSON each.
// Arguments: PORT DATABASE PREFIX QUEUE RETRY_AFTER ACTION COUNT; ACTION is delete,
// leave (as if killed) or release.

require __DIR__.'/laravel.php';

[, , , , , $retryAfter, $action, $count] = $argv;
$queue = queue((int) $retryAfter);
for ($i = 0; $i < $count; $i++) {
    $job = $queue->pop($name);
    if ($job === null) {
        break;
    }
    $payload = $job->payload();
    $seen = ['attempts' => $job->attempts(), 'uuid' => $job->uuid(), 'body' => base64_encode($job->getRawBody()), 'data' => $payload['data']];
    if (isset($payload['data']['command'])) {
        $seen['data'] = unserialize($payload['data']['command'])->seen();
    }
    echo json_encode($seen), "\n";
    if ($action === 'delete') {
        $job->delete();
    } elseif ($action === 'release') {
        $job->release(0);
    }
}

<?php
// charge.php CLIENT ORDER CENTS: one charge by a client library; prints its result
// as JSON, or the class of what it threw and its status.

error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
[, $client, $order, $cents] = $argv;
foreach (['laravel_http' => ['GuzzleHttp', 'Illuminate/Container', 'Illuminate/Http'], 'guzzle' => ['GuzzleHttp'],
    'symfony' => ['Symfony/Component/HttpClient'], 'curl' => []][$client] as $package) {
    require_once "/usr/share/php/$package/autoload.php";
}
require __DIR__.'/jobs.php';
try {
    echo json_encode(("charge_$client")($order, (int) $cents));
} catch (Throwable $e) {
    $status = $e->getCode() ?: (preg_match('/status (\d+)/', $e->getMessage(), $m) ? (int) $m[1] : 0);
    echo json_encode([get_class($e), $status]);
}

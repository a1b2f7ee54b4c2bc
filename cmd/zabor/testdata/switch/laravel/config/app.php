<?php

return ['name' => env('APP_NAME', 'Laravel'), 'env' => env('APP_ENV', 'production'), 'key' => env('APP_KEY'), 'timezone' => 'UTC'];
